"""What a sender does not take over from its program, and what a crash of it does not give away."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from producers import Settings, sender_pid, wait_until

from shmaccum import Producer


@pytest.fixture
def unusual_signals() -> Iterator[None]:
    """Have this process block and ignore signals, as a program can for its own reasons."""
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2, signal.SIGRTMIN})
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def signals_of(pid: int, kind: str) -> set[int]:
    """Return the signals that /proc shows as blocked or ignored by a process, but for those of the C library."""
    status = Path(f"/proc/{pid}/status").read_text()
    bits = int(status.partition(f"\n{kind}:\t")[2].split()[0], 16)
    return {number for number in signal.valid_signals() if bits >> number - 1 & 1}


@pytest.mark.usefixtures("unusual_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_started_sender_hears_its_signals(settings: Settings, number: int) -> None:
    """Whatever its program blocks or ignores: SIGTERM has it deliver what lingers, and leave."""
    with Producer(settings(linger_ms=60_000, delivery_timeout_ms=100_000)) as producer:
        pid = sender_pid(producer)
        assert signals_of(pid, "SigBlk") == set()
        assert signals_of(pid, "SigIgn") == {signal.SIGPIPE, signal.SIGXFSZ}
        future = producer.send("t", b"value", partition=0)
        os.kill(pid, number)
        assert future.get(60).offset == 0
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the sender has left")


@pytest.fixture
def core_dumps_allowed() -> Iterator[None]:
    """Have core dumps be on, as far as they can be, for what this process starts."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


@pytest.mark.usefixtures("core_dumps_allowed")
@pytest.mark.parametrize("allowed", [False, True])
def test_a_core_dump_has_no_memory_unless_it_is_wanted(settings: Settings, allowed: bool) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    usual = int(Path("/proc/self/coredump_filter").read_text(), 16)
    with Producer(settings(sender_core_dump=allowed)) as producer:
        pid = sender_pid(producer)
        limit = resource.prlimit(pid, resource.RLIMIT_CORE)
        what = int(Path(f"/proc/{pid}/coredump_filter").read_text(), 16)
        # With PR_SET_DUMPABLE, these would belong to root.
        assert {os.stat(f"/proc/{pid}/{name}").st_uid for name in ("environ", "maps", "fd")} == {os.geteuid()}
    assert (limit, what) == (((hard, hard), usual) if allowed else ((min(1, hard) if hard >= 0 else 1, hard), 0))
