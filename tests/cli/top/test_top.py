"""The live view: what it shows, in few columns and in many, with keys, of no slab and of a damaged one."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest
from fixture_types import Capture
from producers import wait_until
from rich.console import Console
from slab_settings import Settings

from shmaccum import Producer
from shmaccum._core import Geometry, Super
from shmaccum.cli import top
from shmaccum.cli.main import main
from shmaccum.cli.top import keys
from shmaccum.cli.top.history import History, appended, sent
from shmaccum.cli.top.screen import Choices, curve, draw
from shmaccum.cli.top.tables import TABS
from shmaccum.errors import NetworkError
from shmaccum.observe.report import UnreadableSlab, report
from shmaccum.shm.lifecycle import attach, detach


@pytest.fixture
def working(settings: Settings) -> Iterator[Producer]:
    """Return a producer that has sent to several topics."""
    with Producer(settings) as producer:
        for number in range(300):
            producer.send(f"orders{number % 30}", b"x" * number, partition=0)
        producer.flush()
        yield producer


def lines(history: History, width: int, height: int = 0, **chosen: object) -> list[str]:
    """Return the screen's lines."""
    choices = Choices()
    for name, value in chosen.items():
        setattr(choices, name, value)
    out = Console(width=width, height=height or None, highlight=False, markup=False, emoji=False)
    with out.capture() as captured:
        out.print(draw(history, choices, width, height))
    return captured.get().splitlines()


@pytest.mark.usefixtures("working")
def test_tables_fit_their_terminal_and_are_sorted_filtered_and_counted(slab_name: str) -> None:
    history = History()
    history.add(report(slab_name))
    history.add(report(slab_name))
    headings = ("PARTITION", "BROKER", "PROCESS", "COUNT", "WHAT")
    for width in (40, 80, 200):
        for tab in range(len(TABS)):
            shown = lines(history, width, 24, tab=tab)
            assert len(shown) <= 24
            assert all(len(line) <= width for line in shown)
            assert shown[0].startswith("healthy")
            assert shown[1].startswith("memory ")
            assert any(line.lstrip().startswith(headings[tab]) for line in shown)

    wide = lines(history, 220)
    for column in TABS[0].columns(history):
        assert column.heading in "\n".join(wide)
    assert sum(line.startswith("orders") for line in wide) == 60

    def orders(**chosen: object) -> list[str]:
        return [line.split()[0] for line in lines(history, 80, **chosen) if line.startswith("orders")]

    by_name = [0] * len(TABS)
    names = orders(sorted_by=by_name)
    assert names == sorted(names)
    assert orders(sorted_by=by_name, is_reversed=True) == names[::-1]
    assert orders(contains="ERS2-0") == ["orders2-0"]
    assert any(re.match(r"and \d+ more", line) for line in lines(history, 80, 24))


@pytest.mark.parametrize(
    ("width", "text"), [(60, ""), (80, "broker 1 is away: xx"), (120, "broker 1 is away: " + "x" * 30)]
)
def test_the_text_of_an_error_is_cut_before_it_is_left_out(
    working: Producer, slab_name: str, width: int, text: str
) -> None:
    working._slab.incidents.note(NetworkError, "broker 1 is away: " + "x" * 100)
    history = History()
    history.add(report(slab_name))
    shown = lines(history, width, tab=3)
    assert all(len(line) <= width for line in shown)
    (row,) = [line for line in shown if "NetworkError" in line]
    assert row.partition("NetworkError")[2].strip().startswith(text)
    assert row.rstrip().endswith("…" if text else "NetworkError")


def test_what_was_counted_since_the_first_look(settings: Settings, slab_name: str) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"x" * 10_000, partition=0).get(timeout=30)
        history = History()
        history.add(report(slab_name))
        for _ in range(100):
            producer.send("t", b"x", partition=0)
        producer.flush()
        history.add(report(slab_name))

        assert history.recent("record_size_bytes").count == 100
        assert history.recent("record_size_bytes").percentile(100) < 100 < history.slab.metrics["record-size-avg"]
        assert history.rate(appended) > 0
        assert history.rate(sent) > 0
        partition = next(each for each in history.slab.partitions if each.partition == 0)
        assert history.rate_of_partition(partition.entry) == history.rate(sent)


def test_one_screen_and_one_object_for_programs(working: Producer, slab_name: str, capfd: Capture) -> None:
    assert main(["top", slab_name, "--once", "--tab", "processes"]) == 0
    out, err = capfd.readouterr()

    assert err == ""
    assert out.startswith("healthy")
    assert str(os.getpid()) in out
    assert "shmaccum sender" in out
    assert "\x1b" not in out

    assert main(["top", slab_name, "--once", "--json"]) == 0
    (slab,) = json.loads(capfd.readouterr().out)["slabs"]

    assert slab["verdict"] == "healthy"
    assert slab["findings"] == []
    assert slab["distributions"]["record_size_bytes"]["count"] == 300


def test_misuse(slab_name: str, capfd: Capture) -> None:
    for arguments, status, said in (
        ([], 2, "--once"),
        ([slab_name, "--once"], 1, slab_name),
        (["a/b", "--once"], 1, "'a/b' cannot be a slab's name"),
    ):
        assert main(["top", *arguments]) == status
        assert said in capfd.readouterr().err


def test_a_damaged_slab_is_named_and_does_not_end_the_view(slab_name: str, capfd: Capture) -> None:
    slab = attach(slab_name, Geometry(64, 8, 4, 4, 4))
    slab.words[Super.TOPIC_COUNT] = 1000
    try:
        assert main(["top", slab_name, "--once"]) == 0
        assert "damaged" in capfd.readouterr().out
    finally:
        slab.words[Super.TOPIC_COUNT] = 0
        detach(slab)


def test_curves() -> None:
    assert curve([9, *[0] * 17, 1, 2, 7]) == "▁" * 17 + "▂▃█"
    assert curve([0.0, 0.0]) == "▁▁"
    assert curve([]) == ""


def test_keys() -> None:
    """Digits and letters of other function keys are none: Delete would choose table 3."""
    assert list(keys("s\x1b[A\x1bOB\x1b[6~/é\x1b")) == ["s", "up", "down", "page down", "/", "é", "\x1b"]
    for other in ("\x1b[3~", "\x1b[15~", "\x1b[D", "\x1bOP", "\x1b[1;5C", "\x1b[Z"):
        assert list(keys(f"1{other}q")) == ["1", "q"]


class Terminal:
    """A terminal with the live view in it."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor

    def press(self, typed: str) -> None:
        """Send keys."""
        os.write(self._descriptor, typed.encode())

    def hang_up(self) -> None:
        """Take it away; no SIGHUP says so, since it controls no session."""
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), self._descriptor)

    def await_text(self, pattern: str, ignored: str = r"\x1b\[[0-9;?]*[A-Za-z]") -> None:
        """Wait until it shows something."""
        shown, deadline = "", time.monotonic() + 60
        while not re.search(pattern, shown):
            assert time.monotonic() < deadline, f"{pattern}: {shown[-2000:]}"
            if select.select([self._descriptor], [], [], 0.1)[0]:
                shown += re.sub(ignored, "", os.read(self._descriptor, 65536).decode(errors="ignore"))

    def await_screen(self, *, of_the_view: bool) -> None:
        """Wait until it changes to the view's own screen, or back."""
        self.await_text(rf"\x1b\[\?1049{'h' if of_the_view else 'l'}", ignored="$^")

    def is_the_shells(self) -> bool:
        """Return whether it has a shell's modes: it shows what is typed, and sends it by lines."""
        modes = termios.tcgetattr(self._descriptor)[3]
        return bool(modes & termios.ECHO and modes & termios.ICANON)


@contextmanager
def terminal(*arguments: str, **variables: str) -> Iterator[Terminal]:
    """Run ``shmaccum top`` in a terminal of its own."""
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **variables}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "shmaccum", "top", *arguments],
        stdin=its,
        stdout=its,
        stderr=its,
        env=environment,
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_live_with_keys(working: Producer, slab_name: str) -> None:
    with terminal(slab_name, "--interval", "0.2") as shown:
        shown.await_text(r"(?s)healthy .*PARTITION")
        for key, text in (
            ("2", "STATE"),
            ("\t", "shmaccum sender"),
            ("5", "record's size"),
            ("?", "reverse the order"),
            ("?1", "PARTITION"),
            ("/orders7-", "rows with: orders7-_"),
            ("\r", "orders7-0"),
            ("\x1b", "and [0-9]+ more"),
            ("sSrp\x1b[B\x1b[6~", "paused"),
        ):
            shown.press(key)
            shown.await_text(text)
        shown.press("q")
        assert shown.process.wait(30) == 0


def test_it_ends_with_its_terminal(working: Producer, slab_name: str) -> None:
    with terminal(slab_name) as shown:
        shown.await_text("healthy")
        shown.hang_up()
        assert shown.process.wait(30) == 1


def test_the_chosen_slab_stays_when_another_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(*names: str) -> None:
        monkeypatch.setattr(top, "all_reports", lambda _: [UnreadableSlab(name, "why") for name in names])

    watch = top._Watch(None, 1.0, Choices(), 0, [], Console())
    of("a", "b", "c")
    watch._look()
    watch._obey("n")
    assert watch._names[watch._chosen] == "b"
    for names, chosen in (("bc", "b"), ("abc", "b"), ("ac", "c"), ("a", "a"), ("", None), ("ab", "a")):
        of(*names)
        watch._look()
        assert (watch._names[watch._chosen] if watch._names else None) == chosen


def test_a_signal_gives_the_terminal_back(slab_name: str) -> None:
    """Ctrl-Z stops the view and SIGTERM ends it; the shell gets its own screen and its modes."""
    with terminal(slab_name, "--interval", "0.2") as shown:
        shown.await_text("there is no slab")
        shown.process.send_signal(signal.SIGTSTP)
        shown.await_screen(of_the_view=False)
        status = Path(f"/proc/{shown.process.pid}/stat")
        wait_until(lambda: status.read_text().rpartition(") ")[2][0] == "T", "it has stopped")
        assert shown.is_the_shells()
        shown.process.send_signal(signal.SIGCONT)
        shown.await_screen(of_the_view=True)
        shown.await_text("there is no slab")
        assert not shown.is_the_shells()
        shown.process.terminate()
        assert shown.process.wait(30) == 128 + signal.SIGTERM
        shown.await_screen(of_the_view=False)
        assert shown.is_the_shells()


def test_a_dumb_terminal_is_refused(slab_name: str) -> None:
    with terminal(slab_name, TERM="dumb") as shown:
        shown.await_text("TERM = 'dumb': nothing can be drawn there; use --once, or set TERM to its kind")
        assert shown.process.wait(30) == 2


def test_live_in_a_terminal_without_unicode_and_at_first_without_a_slab(settings: Settings, slab_name: str) -> None:
    with terminal(slab_name, "--interval", "0.2", PYTHONIOENCODING="ascii", LC_ALL="C") as shown:
        shown.await_text("there is no slab")
        with Producer(settings) as producer:
            producer.send("t", b"x", partition=0).get(timeout=30)
            shown.await_text(r"(?s)healthy .*memory \?{8}.*t-0")
        shown.await_text("there is no slab")
        shown.press("q")
        assert shown.process.wait(30) == 0
