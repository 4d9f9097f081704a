"""What a command leaves behind is found, however far it detached itself; what others do is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

DETACHED = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
{action}
for number in (0, 1, 2):
    os.close(number)
time.sleep({seconds})
"""
CHAIN = """
import os, time
end = time.monotonic() + 1.5
if os.fork():
    os._exit(0)
for number in (0, 1, 2):
    os.close(number)
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""
LISTEN = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()"


def check(program: str, patience_s: float = 1.0) -> tuple[int, str]:
    """Run a Python program under the check; return the status and what was said."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK.format(patience_s=patience_s), sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


CHECK = """
import sys
from tools import leftovers
leftovers.PATIENCE_S = {patience_s}
sys.exit(leftovers.main())
"""


def test_nothing() -> None:
    status, out = check("print('done', flush=True)")
    assert status == 0
    assert "nothing is left behind" in out


def test_the_commands_own_status_is_kept() -> None:
    assert check("raise SystemExit(7)")[0] == 7


def test_what_goes_in_time_is_not_left_behind() -> None:
    assert check(DETACHED.format(action="", seconds=0.5), patience_s=20)[0] == 0


def test_a_detached_process() -> None:
    status, out = check(DETACHED.format(action="", seconds=5))
    assert status == 1
    assert out.count("LEFT BEHIND") == 1
    assert ": process " in out


def test_processes_that_fork_and_go() -> None:
    status, out = check(CHAIN, patience_s=0)
    assert status == 1
    assert ": process " in out


def test_a_port() -> None:
    status, out = check(DETACHED.format(action=LISTEN, seconds=5))
    assert status == 1
    assert ": listening on tcp 0100007F:" in out


def test_a_file() -> None:
    file = Path(f"/dev/shm/shmaccum-left{os.getpid()}.lock")
    try:
        status, out = check(f"open({str(file)!r}, 'x')")
    finally:
        file.unlink()
    assert status == 1
    assert f": file {file}" in out


OTHERS = """
import os, subprocess, sys
environment = {{name: value for name, value in os.environ.items() if name != "SHMACCUM_LEFTOVERS_OF"}}
process = subprocess.Popen(
    [sys.executable, "-c", {program!r}], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
)
process.stdout.readline()
print(process.pid, flush=True)
"""
MAP = """
import mmap, time
file = open({file!r}, "x+b")
file.truncate(4096)
mapped = mmap.mmap(file.fileno(), 4096)
print("mapped", flush=True)
time.sleep(60)
"""


def test_a_file_of_somebody_else() -> None:
    file = Path(f"/dev/shm/shmaccum-other{os.getpid()}")
    try:
        status, out = check(OTHERS.format(program=MAP.format(file=str(file))))
        os.kill(int(out.split()[0]), signal.SIGKILL)
    finally:
        file.unlink()
    assert (status, out.count("LEFT BEHIND")) == (0, 0)


@pytest.mark.parametrize("file", ["shmaccum-a", "sem.shmaccum-a.l0", "shmaccum-a.lock", "shmaccum-a.bell"])
def test_files_of_a_slab(file: str) -> None:
    from tools.leftovers import slab_of

    assert slab_of(file) == "shmaccum-a"
