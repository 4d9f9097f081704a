"""Which form of the package is measured: the one that is meant, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shmaccum
from tools.benchmark.errors import BenchmarkError, MissingError
from tools.benchmark.package_form import COMPILED, PLAIN, ROOT, compiled_form


def run(program: str, directory: Path) -> str:
    """Run a program in an interpreter of its own; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


ENTERS = """
import os, subprocess
from shmaccum.shm import names  # as the tool has it before it forks
from tools.benchmark.package_form import PLAIN
PLAIN.enter()
import shmaccum
print(shmaccum.compiled, shmaccum.__file__)
command = [sys.executable, "-c", "import shmaccum; print(shmaccum.__file__)"]
print(subprocess.run(command, capture_output=True, text=True).stdout)
"""


def test_a_process_and_what_it_starts_have_the_form(tmp_path: Path) -> None:
    home = str(ROOT / "shmaccum" / "__init__.py")
    assert run(ENTERS, tmp_path).split() == ["False", home, home]


def test_another_form_than_the_one_that_is_meant(tmp_path: Path) -> None:
    """A directory that is to have the compiled form, and has the plain one."""
    (tmp_path / "shmaccum").symlink_to(ROOT / "shmaccum")
    said = run(
        f"""
from pathlib import Path
from tools.benchmark.package_form import Form
Form(True, Path({str(tmp_path)!r})).enter()
""",
        tmp_path,
    )
    assert "the package should be compiled, but the import found" in said


def test_too_late(tmp_path: Path) -> None:
    said = run("from shmaccum import Producer\nfrom tools.benchmark.package_form import PLAIN\nPLAIN.enter()", tmp_path)
    assert "the package was imported before its form was chosen" in said


def test_a_process_of_another_form() -> None:
    """A process without a library of the compiled form does not have that form; one that has ended has none."""
    this, other = (COMPILED, PLAIN) if shmaccum.compiled else (PLAIN, COMPILED)
    this.check([os.getpid()])
    with pytest.raises(BenchmarkError, match=f"does not run the package as {other.name}"):
        other.check([os.getpid()])
    with subprocess.Popen(["true"]) as ended:
        pass
    COMPILED.check([ended.pid])


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="there is no C compiler"):
        compiled_form(tmp_path, print)
