"""The processes of a run: starts, stops and kills them, and waits for the end of each.

This process may kill all its descendants: as a *subreaper* (prctl(2)) it inherits the senders, which detach themselves
from the producers that start them. So it sees how each of them ends, a pid that it signals never belongs to a foreign
process, and `kill_all` leaves none behind. Forked processes die with it, whatever its end.

A process in a PID namespace of its own is that namespace's init. The senders that it starts do not become children of
this process. The kernel kills them when it dies, as in a container.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, NoReturn

from tools.support.proc import pids, read

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_EVERY_S: Final = 0.01

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWPID: Final = 0x20000000
_MS_REC_PRIVATE: Final = 0x4000 | 1 << 18

_libc: Final = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Make the kernel kill this process when the one that forked it exits."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent exits, such as senders, which detach themselves."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_descendant(pid: int) -> bool:
    """Return whether a process lives and descends from this one; senders do, once their producers have detached."""
    if _state_and_parent(pid)[0] in "ZX":
        return False
    while pid > 1 and pid != os.getpid():
        pid = parent_of(pid)
    return pid == os.getpid()


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent, 0 if there is no such process."""
    return _state_and_parent(pid)[1]


def descendants(pid: int) -> list[int]:
    """Return the pids of the living processes below a process, parents first."""
    below: dict[int, list[int]] = {}
    for each in pids():
        state, parent = _state_and_parent(each)
        if state not in "ZX":
            below.setdefault(parent, []).append(each)
    found = [*below.get(pid, ())]
    for each in found:  # it grows meanwhile
        found += below.get(each, ())
    return found


def _state_and_parent(pid: int) -> tuple[str, int]:
    fields = read(pid, "stat").rpartition(b")")[2].split() or [b"X", b"0"]
    return fields[0].decode(), int(fields[1])


def _children() -> set[int]:
    """Return the pids of this process's children, also of dying ones: these can still have children."""
    return {pid for pid in pids() if parent_of(pid) == os.getpid()}


@contextmanager
def _children_in_new_namespace() -> Iterator[None]:
    """Put the next child into a PID namespace of its own; this process stays where it is."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        _call("unshare", _CLONE_NEWPID)
        try:
            yield
        finally:
            _call("setns", own, _CLONE_NEWPID)
    finally:
        os.close(own)


def _call(function: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0, or -1 and sets errno."""
    if getattr(_libc, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


class Children:
    """The processes that this one has started and inherited since; earlier children (``before``), as a broker, stay.

    Forked processes write their messages into a file. How the inherited ones end is checked on request.

    Attributes:
        counts: number of killed and stopped processes, by kind.
        problems: processes that ended in an unexpected way.
    """

    def __init__(self, messages: Path, *, judge_inherited: bool = True) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._messages = messages
        self._judge_inherited = judge_inherited
        self._forked: dict[int, str] = {}
        self._stopped: dict[int, float] = {}
        self._dying: set[int] = set()
        self._asked: set[int] = set()
        """Those that were sent a SIGTERM, which ends a producer that has no handler yet."""
        self.before = set(_children())
        adopt_orphans()

    def fork(self, who: str, run: Callable[[], int], *, pid_namespace: bool = False) -> int:
        """Start a process that runs a function and exits with its result; return its pid.

        In a PID namespace of its own, it has its own /proc.
        """
        parent = os.getpid()
        # Python would ignore an interrupt that arrives during a fork, in some module's hook.
        unheld = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
        with _children_in_new_namespace() if pid_namespace else nullcontext():
            pid = os.fork()
            if not pid:
                self._be_child(run, parent, unheld, pid_namespace=pid_namespace)
        self._forked[pid] = who
        signal.pthread_sigmask(signal.SIG_SETMASK, unheld)
        return pid

    def _be_child(
        self, run: Callable[[], int], parent: int, unheld: set[int | signal.Signals], *, pid_namespace: bool
    ) -> NoReturn:
        status = 1
        try:
            die_with_parent()
            # /proc is still the parent's; getppid() is 0 if the parent is in another namespace.
            if _state_and_parent(parent)[0] in "ZX" or os.getppid() not in (parent, 0):
                os._exit(1)  # the parent died before prctl took effect
            if pid_namespace:
                # It, and no other process, gets the /proc of its PID namespace.
                _call("unshare", _CLONE_NEWNS)
                _call("mount", None, b"/", None, _MS_REC_PRIVATE, None)
                _call("mount", b"proc", b"/proc", b"proc", 0, None)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tool, which then kills this process
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, unheld)
            with open(self._messages, "ab") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            faulthandler.enable(2)
            status = run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def kill(self, pid: int, what: str) -> None:
        if parent_of(pid) == os.getpid():
            self._dying.add(pid)
        os.kill(pid, signal.SIGKILL)
        self.counts[f"{what}s killed"] += 1

    def terminate(self, pid: int, what: str) -> None:
        """Ask a process to end, as part of the plan; a stopped one hears it once it is continued."""
        self.ask_to_end(pid)
        self.counts[f"{what}s terminated"] += 1

    def ask_to_end(self, pid: int) -> None:
        """Send SIGTERM to a child. One that has no handler yet may die of it."""
        os.kill(pid, signal.SIGTERM)
        self._asked.add(pid)

    def is_dying(self, pid: int) -> bool:
        """Return whether a process has been killed, and not been waited for yet."""
        return pid in self._dying

    def stop(self, pid: int, what: str, until_s: float) -> None:
        """Stop a process until a monotonic time, or until it is killed."""
        os.kill(pid, signal.SIGSTOP)
        self._stopped[pid] = max(until_s, self._stopped.get(pid, 0.0))
        self.counts[f"{what}s stopped"] += 1

    def continue_due(self, now_s: float) -> None:
        for pid in [pid for pid, until_s in self._stopped.items() if until_s <= now_s]:
            del self._stopped[pid]
            with suppress(ProcessLookupError):  # a sender that died with its namespace, which no one has waited for
                os.kill(pid, signal.SIGCONT)

    def abort(self, pid: int, why: str) -> None:
        """Kill a stuck child; `faulthandler` writes where it was to its messages."""
        self.problems.append(f"{self._forked[pid]} {why}; see where it was in {self._messages}")
        self._dying.add(pid)
        os.kill(pid, signal.SIGABRT)

    def reap(self) -> list[int]:
        dead: list[int] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return dead
            if not pid:
                return dead
            dead.append(pid)
            self._stopped.pop(pid, None)
            who = self._forked.pop(pid, "")
            has_heard = pid in self._asked and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
            self._asked.discard(pid)
            if pid in self._dying or has_heard:
                self._dying.discard(pid)
            elif who or self._judge_inherited:
                # A sender that finds another one serving exits with status 1.
                allowed, who = ((0,), who) if who else ((0, 1), "a process that a producer started")
                if os.WIFSIGNALED(status):
                    number = signal.Signals(os.WTERMSIG(status)).name
                    self.problems.append(f"{who} was killed by {number}, not by the plan")
                elif os.WEXITSTATUS(status) not in allowed:
                    self.problems.append(f"{who} ended with status {os.WEXITSTATUS(status)}; see {self._messages}")

    def wait_for(self, pid: int, patience_s: float) -> None:
        """Wait until a forked process has ended; one that does not in time is stuck."""
        deadline = time.monotonic() + patience_s
        while pid not in self.reap():
            if time.monotonic() > deadline:
                self.abort(pid, f"did not end within {patience_s:.0f} s")
                return
            time.sleep(_LOOK_EVERY_S)

    def kill_all(self) -> None:
        while left := _children() - self.before:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            self._dying |= left
            self.reap()
            time.sleep(_LOOK_EVERY_S)
