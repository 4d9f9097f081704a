"""What the set-up does where the system lacks something: with an apt-get that only notes what it was asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from runs import run_python

APT_GET = """#!/bin/sh
echo "$*" >> {bin}/notes
if [ "$1" = install ]; then
    printf '#!/bin/sh\\necho version \\\\"{version}\\\\" >&2\\n' > {bin}/java
    /bin/chmod +x {bin}/java
fi
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="apt-get is only run by root")


def put_apt_get(directory: Path, script: str, version: str = "") -> None:
    file = directory / "apt-get"
    file.write_text(script.format(bin=directory, version=version))
    file.chmod(0o755)


def ensure_java(path: Path) -> subprocess.CompletedProcess[str]:
    """Run the set-up's part for Java, with nothing on the PATH but what is in a directory."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(path)}
    return run_python("-c", "from tools.setup_env import ensure_java; ensure_java()", env=environment)


@needs_root
def test_root_gets_a_missing_java_installed(tmp_path: Path) -> None:
    put_apt_get(tmp_path, APT_GET, "17.0.15")
    done = ensure_java(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    install = "install --yes --no-install-recommends default-jre-headless"
    assert done.stdout == f"PySpark needs a Java runtime: apt-get {install}\n"
    assert (tmp_path / "notes").read_text() == f"update --quiet\n{install}\n"
    again = ensure_java(tmp_path)
    assert (again.returncode, again.stdout) == (0, ""), "what is there is not installed again"


@needs_root
def test_one_that_is_too_old_is_no_help(tmp_path: Path) -> None:
    put_apt_get(tmp_path, APT_GET, "11.0.2")
    done = ensure_java(tmp_path)
    assert done.returncode == 1
    assert "version 17 or later, but found 11" in done.stderr


def test_without_permission_the_error_has_the_command(tmp_path: Path) -> None:
    done = ensure_java(tmp_path)  # no apt-get, and so not for root either
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "PySpark needs a Java runtime: sudo apt-get install --yes --no-install-recommends default-jre-headless\n"
    )


APT_GET_MAVEN = """#!/bin/sh
echo "$*" >> {bin}/notes
if [ "$1" = install ]; then
    printf '#!/bin/sh\\necho no way to the repository; exit 1\\n' > {bin}/mvn
    /bin/chmod +x {bin}/mvn
fi
"""
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


FETCH_SPIN = """#!/bin/sh
echo "$*" >> {bin}/notes
[ "$1" = install ] && /usr/bin/touch {bin}/spin {bin}/gcc && /bin/chmod +x {bin}/spin {bin}/gcc
exit 0
"""


def ensure_spin(path: Path) -> subprocess.CompletedProcess[str]:
    return run_python("-c", "from tools.setup_env import ensure_spin; ensure_spin()", env={"PATH": str(path)})


@needs_root
def test_root_gets_a_missing_maven_installed(tmp_path: Path) -> None:
    put_apt_get(tmp_path, APT_GET_MAVEN)
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


@needs_root
def test_root_gets_a_missing_spin_installed(tmp_path: Path) -> None:
    put_apt_get(tmp_path, FETCH_SPIN)
    install = "install --yes --no-install-recommends spin gcc libc6-dev"

    done = ensure_spin(tmp_path)

    assert (done.returncode, done.stdout) == (0, f"the models need spin and gcc: apt-get {install}\n")
    again = ensure_spin(tmp_path)
    assert (again.returncode, again.stdout) == (0, ""), "what is there is not installed again"


def test_without_permission_the_error_has_the_command_for_spin(tmp_path: Path) -> None:
    done = ensure_spin(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("the models need spin and gcc: sudo apt-get install --yes ")


def test_without_permission_the_error_has_the_command_for_kerberos(tmp_path: Path) -> None:
    done = run_python(
        "-c", "from tools.setup_env import ensure_kerberos; ensure_kerberos()", env={"PATH": str(tmp_path)}
    )
    assert done.returncode == 1
    assert done.stderr.startswith("the tests with Kerberos need a key distribution center: sudo apt-get install --yes ")


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
