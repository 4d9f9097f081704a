"""Compiles the core, and the modules that every record and every batch passes through.

The core (``shmaccum/core/``) is one extension of included files, and there is no package without it. Most of the others
are plain Python, with a ``.pxd`` file beside each that declares its types for Cython. The other ``.pyx`` modules are
kernels for them. An editable install compiles the core alone, so that changes of the other sources take effect.

Environment variables:

* ``SHMACCUM_SANITIZE=1`` compiles with AddressSanitizer and UBSan, for processes that have libasan loaded
  (``python -m tools.fuzz --sanitize``).
* ``SHMACCUM_PURE=1`` leaves the modules out, for `tools.wheels`, which compiles them for other machines.

Without a C compiler, Zig's is used, if ``ziglang`` is installed: `tools/packaging/backend.py` asks for it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # anything not in a .pxd file stays a Python object, with Python's rules
    "boundscheck": True,
    "wraparound": False,  # the sources must not index from the end
    "cdivision": True,
    "binding": False,  # no function becomes a method, and to allow it takes an eighth of the compiler's time
    "auto_pickle": False,  # nothing here can be pickled, and the code to say so takes a fifth of the compiler's time
}

SHARED = "shmaccum._cyutility"
"""Cython's own code that the modules share, such as its memory views: compiled once, not with each of them."""

SANITIZED = ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


ZIG = "-DNDEBUG -fwrapv -fPIC -fno-sanitize=undefined -Wno-unused-command-line-argument"
"""CPython's own flags for Zig, which otherwise adds traps for undefined behaviour that need its runtime."""


def is_set(variable: str) -> bool:
    """Return whether an environment variable is set, not empty and not 0."""
    return os.environ.get(variable, "0") not in ("", "0")


LEFT_OUT = (
    "code-hoisting",
    "crossjumping",
    "gcse",
    "ipa-cp",
    "ipa-icf",
    "ipa-sra",
    "reorder-blocks-and-partition",
    "schedule-insns2",
    "thread-jumps",
    "tree-pre",
    "tree-switch-conversion",
    "tree-tail-merge",
    "tree-vrp",
)
"""Passes of GCC that most modules do without, as they do without -O2: they mostly call Python, and compile in half of
the time. The sender needs one hundredth more instructions for a batch then."""


HOT = {
    "batch_drainer.py",
    "completer.py",
    "completion_ring.py",
    "frames.py",
    "futures.py",
    "histograms.py",
    "partition_queue.py",
    "pending_batches.py",
    "produce_request.py",
    "produce_response.py",
    "ready_check.py",
    "record_batch.py",
    "records.py",
    "response_handler.py",
    "sealer.py",
    "sender.py",
    "sequences.py",
    "undecided_batches.py",
}
"""Modules that get -O2, like the kernels: from a record's append to the response to its batch."""

CLANG = ["-fms-volatile", "-DSHMACCUM_VOLATILE_ACQUIRES_AND_RELEASES"]
"""For clang: loads and stores of the slab's words are ordered on every machine (`shm/memory.pxd`). On x86-64, the
instructions are the same without."""


def optimized(source: Path) -> list[str]:
    """Return the compiler's flags for a module."""
    is_hot = source.suffix == ".pyx" or source.name in HOT
    return ["-O2"] if is_hot else ["-Os", *(f"-fno-{each}" for each in LEFT_OUT)]


def extensions() -> list[Extension]:
    """Return the core, and the modules that have a ``.pxd`` file; only the core for an editable install."""
    if is_set("SHMACCUM_PURE") or {"egg_info", "dist_info"} & set(sys.argv):
        return []  # pip asks for the metadata first, which say nothing of the modules
    choose_compiler()
    from Cython.Build import cythonize

    flags = SANITIZED if is_set("SHMACCUM_SANITIZE") else []
    core = Extension(
        "shmaccum._core",
        ["shmaccum/core/_core.pyx"],
        include_dirs=["shmaccum/core"],
        depends=["shmaccum/core/atomics.h"],
        extra_compile_args=flags or ["-O2", "-g0"],
        extra_link_args=flags,
    )
    built: list[Extension] = cythonize([core], build_dir="build/cython")  # its directives stand in its source
    if "editable_wheel" in sys.argv or "--inplace" in sys.argv:
        return built
    typed = sorted(Path("shmaccum").rglob("*.pxd"))
    modules = [next(path for kind in (".py", ".pyx") if (path := pxd.with_suffix(kind)).exists()) for pxd in typed]
    modules.sort(key=lambda module: -module.stat().st_size)  # the longest first: then both cores end at once
    sources = {".".join(module.with_suffix("").parts): module for module in modules}
    found = [
        Extension(name, [str(source)], extra_compile_args=flags or [*optimized(source), "-g0"], extra_link_args=flags)
        for name, source in (sources | {SHARED: Path(SHARED.replace(".", "/") + ".c")}).items()
    ]
    return built + cythonize(
        found,
        compiler_directives=DIRECTIVES,
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        shared_utility_qualified_name=SHARED,
    )


def choose_compiler() -> None:
    """Choose Zig's C compiler if the system has none."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(command[0]):
        return
    if find_spec("ziglang") is None:
        sys.exit(
            f"shmaccum's core is compiled, and there is no C compiler ({command[0]}): install one (apt-get install "
            "gcc), or `pip install ziglang`, which has one, and try again"
        )
    compiler = f"{shlex.quote(sys.executable)} -m ziglang cc {ZIG}"
    os.environ |= {"CC": compiler, "LDSHARED": f"{compiler} -shared"}


class BuildExtensions(build_ext):
    """Compiles with the flags that the compiler knows."""

    def build_extensions(self) -> None:
        """Compile; other compilers than GCC refuse the names of its passes, and order words in another way."""
        version = subprocess.run([*self.compiler.compiler_so, "--version"], capture_output=True, text=True, check=False)
        if "Free Software Foundation" not in version.stdout:
            for extension in self.extensions:
                passes = {f"-fno-{each}" for each in LEFT_OUT}
                kept = [each for each in extension.extra_compile_args if each not in passes]
                extension.extra_compile_args = [*kept, *(CLANG if "clang" in version.stdout else [])]
        super().build_extensions()


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtensions},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
