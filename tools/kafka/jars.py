"""Fetches Apache Kafka's jars from Maven Central, once, into the project's ``.kafka`` directory.

A directory named by the version is the stamp: it gets its name only when everything is in it. Beside the jars lies an
archive of the JVM's loaded classes (AppCDS), made by one trial run: with it a broker starts in less than half the time.
The JVM ignores an archive that does not match its version or the jars' location, so a stale archive does no harm.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.kafka.errors import KafkaMissingError, KafkaToolError
from tools.support.bare import java

VERSION: Final = "4.3.1"
"""Of Apache Kafka; its broker runs on Java 17."""
HOME: Final = Path(__file__).resolve().parents[2] / ".kafka"
"""Of everything fetched, and of the cluster that the command line starts; not under version control."""
INSTALL_MAVEN: Final = ("apt-get", "install", "--yes", "--no-install-recommends", "maven")

_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def jar_directory() -> Path:
    """Return where the jars of this version are, once they are fetched."""
    return HOME / f"kafka_2.13-{VERSION}"


def class_archive() -> Path:
    """Return where the archive of loaded classes is, once it is made."""
    return jar_directory() / "classes.jsa"


def missing_maven() -> str:
    """Return that Maven is missing, with the command that installs it; empty if it is there."""
    if shutil.which("mvn") is not None:
        return ""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"Maven (mvn) fetches Apache Kafka, but there is none; install it with `{sudo}{' '.join(INSTALL_MAVEN)}`"


def ensure_jars(train: Callable[[Path], None]) -> None:
    """Fetch what is missing; ``train`` runs a broker such that the JVM leaves an archive of its classes at a path."""
    wrong = java.missing_java("Apache Kafka")
    if wrong:
        raise KafkaMissingError(wrong)
    if class_archive().exists():
        return
    with _fetching():
        if not jar_directory().exists():
            _fetch()
        if not class_archive().exists():
            made = class_archive().with_suffix(f".{os.getpid()}")
            train(made)
            if not made.exists():
                raise KafkaToolError(f"the JVM left no archive of its classes in {made} after a trial run")
            made.rename(class_archive())


def _fetch() -> None:
    wrong = missing_maven()
    if wrong:
        raise KafkaMissingError(wrong)
    with tempfile.TemporaryDirectory(dir=HOME, prefix="fetch-") as scratch:
        if complaint := copy_dependencies(Path(__file__).with_name("pom.xml"), VERSION, Path(scratch, "jars")):
            raise KafkaMissingError(
                f"Maven could not get Apache Kafka {VERSION}; is there a way to its repository? It says: {complaint}"
            )
        Path(scratch, "jars").rename(jar_directory())


def copy_dependencies(pom: Path, version: str, to: Path) -> str:
    """Let Maven copy what a POM wants in this version into a new directory; return its complaint, or an empty text."""
    copied = shutil.copy(pom, to.with_name("pom.xml"))  # Maven puts files of its own beside it
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(copied), _COPY, "-DincludeScope=runtime"]
    command += [f"-Dwanted={version}", f"-DoutputDirectory={to}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()[:1000] or f"status {done.returncode}" if done.returncode else ""


@contextmanager
def _fetching() -> Iterator[None]:
    """Let one process at a time fetch; the kernel frees the lock of one that dies."""
    HOME.mkdir(exist_ok=True)
    with open(HOME / "fetch.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
