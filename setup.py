"""Compiles what every record and every batch passes through, where there is a C compiler and nobody is against it.

The modules are plain Python, and without a compiler they are installed as such, as a wheel that is tagged so. What
Cython is to know of their types is in the ``.pxd`` file beside each. By variables of the environment:

* ``SHMACCUM_PURE=1`` compiles nothing. Nor does an editable install: whoever changes the source is to run what it says.
* ``SHMACCUM_REQUIRE_COMPILED=1`` makes it an error that something cannot be compiled.
* ``SHMACCUM_SANITIZE=1`` has AddressSanitizer and UBSan look after what is compiled, for processes that have libasan
  loaded (``python -m tools.fuzz --sanitize``).

It is all of them or none: compiled modules call each other in C, and half of the locks in C would be no lock.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # what is not in a .pxd file stays a Python object, with Python's rules
    "boundscheck": True,
    "wraparound": False,  # no index counts from the end, which is for the sources to see to
    "cdivision": True,
    "binding": True,
}

SHARED = "shmaccum._cyutility"
"""Cython's own code that the modules have in common, such as its memory views: compiled once, not with each of them."""

HOT = ("shm.memory", "shm.fast", "record.", "pool.", "accumulator.state.", "accumulator.append.", "sender.kafka.fast")
"""How the names of the modules begin that are compiled with -O2. The others spend their time in the interpreter's own
functions: -O1 halves the time to compile them, and costs them nothing that can be measured."""

SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


def is_set(variable: str) -> bool:
    """Return whether a variable of the environment is neither missing, empty nor 0."""
    return os.environ.get(variable, "0") not in ("", "0")


def extensions() -> list[Extension]:
    """Return the modules that have a ``.pxd`` file."""
    is_required = is_set("SHMACCUM_REQUIRE_COMPILED")
    if is_set("SHMACCUM_PURE") or "editable_wheel" in sys.argv:
        if is_required:
            sys.exit("SHMACCUM_REQUIRE_COMPILED contradicts SHMACCUM_PURE, and an editable install: leave out one")
        return []
    from Cython.Build import cythonize

    typed = sorted(Path("shmaccum").rglob("*.pxd"))
    modules = [next(path for kind in (".py", ".pyx") if (path := pxd.with_suffix(kind)).exists()) for pxd in typed]
    flags = SANITIZED if is_set("SHMACCUM_SANITIZE") else []
    sources = {".".join(module.with_suffix("").parts): str(module) for module in modules}

    def arguments(name: str) -> list[str]:
        is_hot = name.removeprefix("shmaccum.").startswith(HOT)
        return [*flags, "-g1" if flags else "-g0", "-O2" if is_hot and not flags else "-O1"]

    found = [
        Extension(name, [source], extra_compile_args=arguments(name), extra_link_args=flags)
        for name, source in (sources | {SHARED: SHARED.replace(".", "/") + ".c"}).items()
    ]
    return cythonize(
        found,
        compiler_directives=DIRECTIVES,
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        shared_utility_qualified_name=SHARED,
    )


class AllOrNone(build_ext):
    """Compiles all the modules, or, where one cannot be compiled, none."""

    def run(self) -> None:
        """Build them; a failure leaves the package as plain Python.

        Raises:
            CompileError: they cannot be compiled, and SHMACCUM_REQUIRE_COMPILED is set.
        """
        try:
            super().run()
        except Exception as error:  # whatever a compiler, or the lack of one, comes to
            if is_set("SHMACCUM_REQUIRE_COMPILED"):
                raise CompileError(
                    f"{error}. SHMACCUM_REQUIRE_COMPILED is set: see that there is a C compiler"
                ) from error
            print(f"shmaccum is installed as plain Python, since it cannot be compiled here: {error}", file=sys.stderr)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []
            self.distribution.ext_modules = []  # by which the wheel's tag is chosen


class Wheel(bdist_wheel):
    """A wheel whose tag says what is in it: of any platform where nothing could be compiled."""

    def run_command(self, command: str) -> None:
        """Run another command; behind ``build``, it is known what the wheel holds."""
        super().run_command(command)
        if command == "build":
            self.root_is_pure = not self.distribution.has_ext_modules()


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": AllOrNone, "bdist_wheel": Wheel},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
