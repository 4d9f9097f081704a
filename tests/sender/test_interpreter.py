"""What a started sender runs: the code that its program has, and nothing of the directory that the program is in."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from producers import Settings, sender_pid
from senders import read_values

import shmaccum
from shmaccum import Producer
from shmaccum.errors import SenderError
from shmaccum.sender import isolation

PACKAGE = Path(shmaccum.__file__).parent

# Writes the command line of its sender, which cannot be read once the sender has left.
PROGRAM = """
import json, sys
from pathlib import Path
from shmaccum import Producer

with Producer(json.loads(sys.argv[1])) as producer:
    producer.send("t", b"value", partition=0).get(60)
    pid = producer._slab.lock_file.holder(1)
    print(json.dumps([pid, *Path(f"/proc/{pid}/cmdline").read_text().split(chr(0))]))
"""


def run(
    where: Path,
    settings: dict[str, object],
    *options: str,
    path: Path | None = PACKAGE.parent,
    program: str = PROGRAM,
    python: str = sys.executable,
) -> tuple[int, list[str]]:
    """Run a program with `python -c` in a directory; return its sender's pid, and that one's command line."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    ended = subprocess.run(
        [python, *options, "-c", program, json.dumps(settings)],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    pid, *command = json.loads(ended.stdout)
    return pid, command


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Return a directory of modules that note who imports them, and break it."""
    directory = tmp_path / "downloads"
    directory.mkdir()
    for name in ("json", "types", "signal", "enum", "socket", "select", "numpy", "cramjam", "shmaccum"):
        note = tmp_path / f"ran-{name}"
        (directory / f"{name}.py").write_text(f"open({str(note)!r}, 'w').close()\nraise SystemExit\n")
    return directory


def test_no_module_of_the_working_directory_runs(trap: Path, settings: Settings, tmp_path: Path) -> None:
    run(trap, settings() | {"log.dir": "records", "sender.log.file": "sender.log"}, "-P")
    assert not list(tmp_path.glob("ran-*"))
    # Its paths mean what they mean to the program.
    assert read_values(trap / "records", "t") == [b"value"]
    assert "INFO shmaccum.sender.sender: producer id" in (trap / "sender.log").read_text()


def test_what_the_sender_has_of_the_environment(
    trap: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No relative path of modules, and no variable that changes what code does."""
    changing = ("PYTHONOPTIMIZE", "PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONINSPECT")
    for name in changing:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.chdir(trap)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "../downloads", str(PACKAGE.parent)]))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with Producer(settings()) as producer:
        environment = Path(f"/proc/{sender_pid(producer)}/environ").read_bytes().split(b"\0")
    assert f"PYTHONPATH={PACKAGE.parent}".encode() in environment
    assert not list(tmp_path.glob("ran-*"))
    found = {each.partition(b"=")[0].decode() for each in environment}
    assert "PYTHONHASHSEED" in found
    assert not found & set(changing)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a directory with another copy of the package, which notes by which processes it is imported."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site / "shmaccum", ignore=shutil.ignore_patterns("*.opt-*"))
    with (site / "shmaccum" / "__init__.py").open("a") as file:
        file.write(f"\nimport os\n\nopen({str(tmp_path)!r} + f'/imported-{{os.getpid()}}', 'w').close()\n")
    return site


FORGETS = """
import sys
sys.path.insert(0, {site!r})
import shmaccum
sys.path.remove({site!r})
"""


@pytest.mark.parametrize("way", ["the working directory", "a path that it has no more"])
def test_the_sender_has_the_package_that_its_program_has(
    way: str, copy: Path, settings: Settings, tmp_path: Path
) -> None:
    """However the program came to it, and though another one is installed."""
    if way == "the working directory":
        pid, _ = run(copy, settings(), path=None)
    else:
        pid, _ = run(tmp_path, settings(), program=FORGETS.format(site=str(copy)) + PROGRAM)
    assert (tmp_path / f"imported-{pid}").exists()


def test_the_sender_has_the_options_that_say_which_files_are_read(settings: Settings, tmp_path: Path) -> None:
    options = ("-X", "utf8", "-X", "frozen_modules=off", "-W", "ignore::UserWarning", "-OO", "-bb", "-B", "-s")
    _, command = run(tmp_path, settings(), *options)
    assert command[: command.index("-c")] == [
        *(sys.executable, "-s", "-B", "-X", "utf8", "-X", "frozen_modules=off", "-P")
    ]


def test_an_interpreter_of_a_relative_path_is_found_from_elsewhere(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's workers have one, if they are found by ``spark.executorEnv.PATH=./environment/bin:...``."""
    (tmp_path / "environment").symlink_to(Path(sys.executable).parent.parent)
    monkeypatch.setenv("PATH", f"./environment/bin{os.pathsep}{os.environ['PATH']}")
    name = Path(sys.executable).name
    _, command = run(tmp_path, settings(), python=name)
    assert command[0] == str(tmp_path / "environment" / "bin" / name)


def test_a_frozen_program_is_not_run_as_an_interpreter(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyInstaller's executable takes any command line for the program's own: it would send the records again."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(SenderError, match=r"frozen.*`shmaccum sender`"):
        Producer(settings())


def test_a_program_without_an_interpreter_says_so(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that embeds Python, where no python3 is in PATH."""
    monkeypatch.setattr(isolation, "EXECUTABLE", "")
    with pytest.raises(SenderError, match=r"sys\.executable is empty.*`shmaccum sender`"):
        Producer(settings())


@pytest.mark.parametrize("limit", [resource.RLIMIT_NOFILE, resource.RLIMIT_CPU], ids=["descriptors", "processor time"])
def test_soft_limits_of_the_program_are_not_the_senders(settings: Settings, limit: int) -> None:
    """It serves other programs, too: they would get the errors of the first one's ``ulimit -S``."""
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (1000, hard))
    try:
        with Producer(settings()) as producer:
            assert resource.prlimit(sender_pid(producer), limit) == (hard, hard)
    finally:
        resource.setrlimit(limit, (soft, hard))


def test_a_debugger_of_the_program_leaves_the_sender_alone(
    settings: Settings, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pydevd puts itself into every Python that a program starts, which then waits until a client attaches to it."""
    skips: list[None] = []

    @contextmanager
    def skip_subprocess_arg_patch() -> Iterator[None]:
        skips.append(None)
        yield
        skips.pop()

    def patched(command: list[str], **options: Any) -> subprocess.Popen[str]:
        assert skips, "the sender would wait for a debugger"
        return popen(command, **options)

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", patched)
    monkeypatch.setitem(
        sys.modules,
        "_pydev_bundle.pydev_monkey",
        cast("ModuleType", SimpleNamespace(skip_subprocess_arg_patch=skip_subprocess_arg_patch)),
    )
    with Producer(settings()) as producer:
        producer.send("t", b"value", partition=0)
    assert read_values(log_dir, "t") == [b"value"]


def test_an_interpreter_that_does_not_start_says_why(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.exit('this site is broken')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SenderError, match=r"without an answer.*(?s:.)*standard error.*(?s:.)*this site is broken"):
        Producer(settings())


@pytest.mark.parametrize(
    ("line", "said"), [("1 / 0", r"ZeroDivisionError\(.*\);"), ("import gone", r"No module named 'gone' \(not.*\[''\]")]
)
def test_code_that_cannot_be_imported_is_named(
    line: str, said: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "posix_ipc.py").write_text(line + "\n")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    with pytest.raises(SenderError, match=f"cannot import its code: {said}.*restart the program"):
        Producer(settings())


def test_a_package_that_has_moved_is_an_error(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, which sys.path has, is not taken for it."""
    monkeypatch.setattr(isolation, "ROOT", str(tmp_path))
    with pytest.raises(SenderError, match=f"there is no package shmaccum in {tmp_path}, where .*restart the program"):
        Producer(settings())
