"""Processor time goes to the right group of processes, and none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from processes import Child

from tools.benchmark import cpu

BURN_S = 0.2


def burn(seconds: float = BURN_S) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def run(program: str) -> None:
    subprocess.run([sys.executable, "-S", "-c", program], check=True)


BURNING = f"import time\nwhile time.process_time() < {BURN_S}: pass"


def roles(link: object) -> None:
    """Burn as a broker, as a worker and as something in between, and by children that end, also unseen."""
    meter = cpu.Meter()
    before = meter.usage([], [])
    pids = []
    for _ in range(3):
        pid = os.fork()
        if not pid:
            burn()
            if len(pids) == 1:
                run(BURNING)  # a child of a worker that ends before it
            time.sleep(60)
            os._exit(0)
        pids.append(pid)
    try:
        broker, worker, _ = pids
        run(BURNING)
        deadline = time.monotonic() + 30
        all_burnt = 5 * BURN_S - 0.05  # the kernel reports ended processes in ticks
        while sum(meter.usage([broker], [worker]).since(before).seconds.values()) < all_burnt or sorted(
            cpu.others([broker])
        ) != sorted(pids[1:]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        used = meter.usage([broker], [worker]).since(before)
        assert cpu.memory([broker], [worker]) > 0
    finally:
        for pid in pids:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    assert used.seconds[cpu.BROKER] == pytest.approx(BURN_S, abs=0.15)
    assert used.seconds[cpu.WORKERS] == pytest.approx(2 * BURN_S, abs=0.15)
    assert used.seconds[cpu.SENDER] == pytest.approx(BURN_S, abs=0.15)
    assert used.seconds[cpu.ENDED] == pytest.approx(BURN_S, abs=0.15)
    assert used.contestant_s == pytest.approx(sum(used.seconds.values()) - used.seconds[cpu.BROKER])


def unwaited(link: object) -> None:
    """A worker that ignores its children's ends, of which one burns, is seen, and ends."""
    meter = cpu.Meter()
    worker = os.fork()
    if not worker:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        child = os.fork()
        if not child:
            burn()
        time.sleep(60)
        os._exit(0)
    try:
        deadline = time.monotonic() + 30
        while (seen := meter.usage([], [worker]).seconds[cpu.WORKERS]) < BURN_S:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (child,) = set(cpu.others([])) - {worker}
        os.kill(child, signal.SIGKILL)
        while child in cpu.others([]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert meter.usage([], [worker]).seconds[cpu.WORKERS] >= seen
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


@pytest.mark.parametrize("scene", [roles, unwaited])
def test_no_time_is_lost(scene: Callable[[object], None]) -> None:
    child = Child(scene, (), "clean")
    try:
        child.result()
    finally:
        child.kill()
