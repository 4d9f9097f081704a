"""An upgrade of the installed package while programs run it: their records are delivered, or they hear what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from producers import settings_of, wait_until, wait_until_gone
from senders import read_values

import shmaccum
from shmaccum.shm.lifecycle import look

PACKAGE = Path(shmaccum.__file__).parent
ABI_LINE = re.compile(r"^ABI_VERSION: Final = (\d+)$", re.M)

# A program that runs commands, a line at a time.
PROGRAM = """
import json, os, signal, sys
from shmaccum import Producer, __version__
from shmaccum.errors import ShmaccumError

producer = Producer(json.loads(sys.argv[1]))
print(producer._slab.name, __version__, flush=True)
for line in sys.stdin:
    word = line.strip()
    try:
        if word == "kill the sender":
            slab = producer._slab
            os.kill(slab.lock_file.holder(1), signal.SIGKILL)
            while slab.has_sender():
                pass
        elif word == "send":
            producer.send("t", b"value", partition=0).get(20)
        elif word == "leave":
            producer.close(0)
            sys.exit()
        print("done", flush=True)
    except ShmaccumError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
"""


class Program:
    """A process that runs the package that is installed in a directory when it starts."""

    def __init__(self, site: Path, settings: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(site)},
            text=True,
            cwd=site,
        )
        self.slab, self.version = self.hear().split()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self.hear()

    def close(self) -> None:
        if self._process.poll() is None:
            self.tell("leave")
        self._process.communicate(timeout=60)


Run = Callable[[Path], Program]


def install(site: Path, version: str, abi: int = 0) -> None:
    """Put the package into a directory, as another version, in place of the one that is there.

    As pip does it, by new files: what a process has loaded from the old ones stays what it is.
    """
    shutil.rmtree(site / "shmaccum", ignore_errors=True)
    shutil.copytree(PACKAGE, site / "shmaccum", ignore=shutil.ignore_patterns("*.opt-*"))
    module = site / "shmaccum" / "abi.py"
    text = module.read_text().replace(f'"{shmaccum.__version__}"', f'"{version}"')
    if abi:
        text, count = ABI_LINE.subn(f"ABI_VERSION: Final = {abi}", text)
        assert count == 1
    module.write_text(text)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a directory in which version 7.0 is installed."""
    install(tmp_path / "site", "7.0")
    return tmp_path / "site"


@pytest.fixture
def run(log_dir: Path) -> Iterator[Run]:
    """Return a function that runs the program with what is installed in a directory."""
    programs: list[Program] = []
    settings = settings_of("", log_dir)
    del settings["shmaccum.name"]

    def start(site: Path) -> Program:
        programs.append(Program(site, json.dumps(settings)))
        return programs[-1]

    yield start
    for program in programs:
        program.close()
    for program in programs:
        wait_until_gone(program.slab)


def test_a_version_of_the_same_layout_goes_on_with_the_slab(site: Path, run: Run, log_dir: Path) -> None:
    """Its sender serves the running programs of the old version, and its programs share their slab."""
    old = run(site)
    assert old.tell("send") == "done"
    install(site, "7.1")
    assert old.tell("kill the sender") == "done"
    assert old.tell("send") == "done"
    new = run(site)
    assert (old.version, new.version) == ("7.0", "7.1")
    assert new.slab == old.slab
    assert new.tell("send") == "done"
    assert read_values(log_dir, "t") == [b"value"] * 3


def test_a_version_of_another_layout_refuses_and_says_what_to_do(
    site: Path, run: Run, log_dir: Path, tmp_path: Path
) -> None:
    """The records stay, and the old version, installed elsewhere, delivers them."""
    old = run(site)
    assert old.tell("send") == "done"
    install(site, "8.0", abi=99)
    assert old.tell("kill the sender") == "done"
    answer = old.tell("send")
    assert answer.startswith("SenderError: the sender did not start: SenderError: shmaccum was replaced while this")
    assert "the program has version 7.0 (ABI " in answer
    assert f"{site}/shmaccum is version 8.0 (ABI 99), which cannot serve its slab" in answer
    assert "pip install shmaccum==7.0) and run old/bin/shmaccum sender with the settings of this program" in answer

    # A record that a producer has appended while there was a sender is there still.
    elsewhere = tmp_path / "old"
    install(elsewhere, "7.0")
    settings = tmp_path / "settings.properties"
    given = settings_of("", log_dir)
    settings.write_text("".join(f"{name}={value}\n" for name, value in given.items() if value != ""))
    sender = subprocess.Popen(
        [sys.executable, "-m", "shmaccum", "sender", "--config", str(settings)],
        env=os.environ | {"PYTHONPATH": str(elsewhere)},
        cwd=elsewhere,
        stderr=subprocess.PIPE,
    )

    def is_served() -> bool:
        with look(old.slab) as view:
            return view.sender().alive

    wait_until(is_served, "the old version's sender serves the old slab")
    assert old.tell("send") == "done"
    old.close()
    sender.communicate(timeout=60)
    assert sender.returncode == 0
    assert read_values(log_dir, "t") == [b"value"] * 2
