"""What a command leaves behind is found, however far it detached itself; what others do is not."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from runs import run_python

DETACHED = """
import os, sys, time
heard, said = os.pipe()
if os.fork():
    os.read(heard, 1)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
{action}
os.write(said, b".")
for number in (0, 1, 2):
    os.close(number)
time.sleep({seconds})
"""
CHAIN = """
import os, time
end = time.monotonic() + 60
if os.fork():
    os._exit(0)
for number in (0, 1, 2):
    os.close(number)
while os.path.exists({file!r}) and time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""
LISTEN = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()"


def check(program: str, shm: Path, patience_s: float = 20.0) -> tuple[int, str]:
    """Run a Python program under the check, with a directory for /dev/shm; return the status and what was said."""
    done = run_python("-c", CHECK.format(shm=str(shm), patience_s=patience_s), sys.executable, "-c", program)
    assert done.stderr == ""
    return done.returncode, done.stdout


CHECK = """
import sys
from pathlib import Path
from tools import leftovers
leftovers.SHM = Path({shm!r})
leftovers.PATIENCE_S = {patience_s}
sys.exit(leftovers.main())
"""


def check_detached(action: str, shm: Path) -> tuple[int, str]:
    """Check a program whose detached process stays when it has acted; end that one."""
    status, out = check(DETACHED.format(action=action, seconds=60), shm, patience_s=1.0)
    (pid,) = re.findall(r": process (\d+): ", out)
    os.kill(int(pid), signal.SIGKILL)
    return status, out


def test_nothing(tmp_path: Path) -> None:
    status, out = check("print('done', flush=True)", tmp_path)
    assert status == 0
    assert "nothing is left behind" in out


def test_the_commands_own_status_is_kept(tmp_path: Path) -> None:
    assert check("raise SystemExit(7)", tmp_path)[0] == 7


def test_processes_that_end_in_time_are_no_leftovers(tmp_path: Path) -> None:
    assert check(DETACHED.format(action="", seconds=0.5), tmp_path)[0] == 0


@pytest.mark.parametrize(("action", "said"), [("", ""), (LISTEN, ": listening on tcp 0100007F:")])
def test_a_detached_process_and_its_port(action: str, said: str, tmp_path: Path) -> None:
    status, out = check_detached(action, tmp_path)
    assert status == 1
    assert out.count("LEFT BEHIND") == 1 + bool(said)
    assert said in out


def test_processes_that_fork_and_go(tmp_path: Path) -> None:
    goes_on = tmp_path / "goes-on"
    goes_on.touch()
    try:
        status, out = check(CHAIN.format(file=str(goes_on)), tmp_path, patience_s=0)
    finally:
        goes_on.unlink()
    assert status == 1
    assert ": process " in out


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shmaccum-left.lock"
    status, out = check(f"open({str(file)!r}, 'x')", tmp_path, patience_s=1.0)
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


def test_a_file_of_another_process() -> None:
    file = Path(f"/dev/shm/shmaccum-other{os.getpid()}")
    try:
        status, out = check(OTHERS.format(program=MAP.format(file=str(file))), file.parent)
        os.kill(int(out.split()[0]), signal.SIGKILL)
    finally:
        file.unlink()
    assert (status, out.count("LEFT BEHIND")) == (0, 0)


@pytest.mark.parametrize(
    "file",
    ["shmaccum-a", "sem.shmaccum-a.l0.0f3c", "sem.shmaccum-a.p1.2.0f3c", "shmaccum-a.lock", "shmaccum-a.wakeup.0f3c"],
)
def test_files_of_a_slab(file: str) -> None:
    from tools.leftovers import slab_of

    assert slab_of(file) == "shmaccum-a"
