"""What the set-up does where the system lacks something: with an apt-get that only notes what it was asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from runs import run_python

APT_GET = 'echo "$*" >> {bin}/notes; [ "$1" != install ] || /bin/cp {bin}/packages/* {bin}'

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="apt-get is only run by root")


def put_apt_get(directory: Path, line: str, *programs: str) -> None:
    """Put an apt-get into a directory, which notes its arguments and installs programs of one line there."""
    (directory / "packages").mkdir()
    files = {directory / "apt-get": APT_GET.format(bin=directory)}
    for file, text in (files | {directory / "packages" / name: line for name in programs}).items():
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)


def ensure(what: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a part of the set-up with nothing on the PATH but what is in a directory."""
    return run_python("-c", f"from tools.setup_env import ensure; ensure({what!r})", env={"PATH": str(path)})


@needs_root
@pytest.mark.parametrize(
    ("what", "line", "programs", "reason", "packages"),
    [
        ("java", "echo 'version \"17.0.15\"' >&2", ["java"], "PySpark needs a Java runtime", "default-jre-headless"),
        ("spin", "", ["spin", "gcc"], "the models need spin and gcc", "spin gcc libc6-dev"),
    ],
    ids=["java", "spin"],
)
def test_root_gets_what_is_missing_installed(
    tmp_path: Path, what: str, line: str, programs: list[str], reason: str, packages: str
) -> None:
    put_apt_get(tmp_path, line, *programs)
    done = ensure(what, tmp_path)
    install = f"install --yes --no-install-recommends {packages}"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{reason}: apt-get {install}\n", "")
    assert (tmp_path / "notes").read_text() == f"update --quiet\n{install}\n"
    again = ensure(what, tmp_path)
    assert (again.returncode, again.stdout) == (0, ""), "what is there is not installed again"


@pytest.mark.parametrize(
    ("what", "reason", "packages"),
    [
        ("java", "PySpark needs a Java runtime", "default-jre-headless\n"),
        ("spin", "the models need spin and gcc", ""),
        ("kerberos", "the tests with Kerberos need a key distribution center", ""),
    ],
)
def test_without_permission_the_error_has_the_command(tmp_path: Path, what: str, reason: str, packages: str) -> None:
    done = ensure(what, tmp_path)  # no apt-get, and so not for root either
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{reason}: sudo apt-get install --yes --no-install-recommends {packages}")


FETCH = """
import sys
from pathlib import Path
from tools.kafka import jars
jars.HOME = Path(sys.argv[1], "kafka")
from tools.setup_env import fetch_kafka
fetch_kafka()
"""


def fetch_kafka(path: Path) -> subprocess.CompletedProcess[str]:
    """Run the set-up's part for Apache Kafka, which is not there, with only Java and a directory on the PATH."""
    java = shutil.which("java")
    assert java is not None
    (path / "java").symlink_to(java)
    return run_python("-c", FETCH, path, env=os.environ | {"PATH": str(path)})


@needs_root
def test_root_gets_a_missing_maven_installed(tmp_path: Path) -> None:
    put_apt_get(tmp_path, "echo no way to the repository; exit 1", "mvn")
    done = fetch_kafka(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    install = "install --yes --no-install-recommends maven"
    assert (tmp_path / "notes").read_text() == f"update --quiet\n{install}\n"
    assert f"Maven fetches Apache Kafka: apt-get {install}\n" in done.stdout
    assert "the tests against Apache Kafka will be skipped: Maven could not get Apache Kafka" in done.stdout
    assert "no way to the repository" in done.stdout


def test_without_maven_the_set_up_goes_on_and_says_what_to_do(tmp_path: Path) -> None:
    done = fetch_kafka(tmp_path)  # no apt-get, and so not for root either
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "the tests against Apache Kafka will be skipped: Maven (mvn) fetches Apache Kafka, but there is" in done.stdout
    )
    assert "apt-get install --yes --no-install-recommends maven`" in done.stdout


def test_an_old_python_is_refused() -> None:
    program = "import sys; sys.version_info = (3, 10, 0); sys.version = '3.10.0 (main)'; import tools.setup_env"
    done = run_python("-c", program)
    assert done.returncode == 1
    assert done.stderr.startswith("Python 3.11 or later is needed, this is 3.10.0: make PYTHON=")


def test_the_site_needs_neither_the_project_nor_java(tmp_path: Path) -> None:
    pip = tmp_path / "venv" / "bin" / "python"
    pip.parent.mkdir(parents=True)
    pip.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/notes\n')
    pip.chmod(0o755)

    done = run_python("-m", "tools.setup_env", tmp_path / "venv", "docs", env={"PATH": str(tmp_path)})

    assert (done.returncode, done.stderr) == (0, "")
    (command,) = (tmp_path / "notes").read_text().splitlines()
    assert "mkdocs-material>=" in command
    assert "--editable" not in command


@pytest.mark.parametrize("module", ["tools.setup_env", "tools.kafka.__main__", "tools.leftovers"])
def test_the_set_up_does_not_need_the_package(module: str) -> None:
    """Without its core, which the set-up compiles, the package cannot be imported."""
    done = run_python("-c", f"import sys; sys.modules['shmaccum'] = None; import {module}")
    assert done.returncode == 0, done.stderr
