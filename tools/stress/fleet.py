"""The producers of a run: each has a place, and a new one replaces a dead one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.stress.account import Account
from tools.stress.load import Load, preload, produce
from tools.support.processes import Children

_LOOK_EVERY_S: Final = 0.02


@dataclass(slots=True)
class Member:
    """A producer process.

    Attributes:
        pid: of the process.
        writers: of its threads.
        accounts: of its writers, as far as they exist.
    """

    pid: int
    writers: Sequence[int]
    accounts: list[Account] = field(default_factory=list)

    @property
    def appended(self) -> int:
        """Number of records it has appended."""
        return sum(account.appended for account in self.accounts)

    def open_accounts(self, directory: Path) -> None:
        """Open the accounts that exist by now."""
        for writer in self.writers[len(self.accounts) :]:
            try:
                self.accounts.append(Account(directory, writer))
            except FileNotFoundError:
                return

    def close(self) -> None:
        """Close its accounts."""
        for account in self.accounts:
            account.close()


class Fleet:
    """The producers, by place.

    Args:
        children: the processes of the run.
        load: what each producer does.
        threads: writers in each.
        pid_namespaces: number of first places whose producers each live in a PID namespace of their own.

    Attributes:
        members: the current producers.
    """

    def __init__(self, children: Children, load: Load, threads: int, pid_namespaces: int = 0) -> None:
        preload()
        self.members: dict[int, Member] = {}
        self._children = children
        self._load = load
        self._threads = threads
        self._pid_namespaces = pid_namespaces
        self._next_writer = 1
        self._appended_before = 0

    def start(self, place: int) -> None:
        """Start a producer in an empty place."""
        writers = range(self._next_writer, self._next_writer + self._threads)
        self._next_writer += self._threads
        pid = self._children.fork(
            f"producer {place}",
            lambda: produce(self._load, writers),
            pid_namespace=place < self._pid_namespaces,
        )
        self.members[place] = Member(pid, writers)
        self._children.counts["producers started"] += 1

    def look(self) -> int:
        """Return how many records have been appended in all."""
        for member in self.members.values():
            member.open_accounts(self._load.accounts)
        return self._appended_before + sum(member.appended for member in self.members.values())

    def reap(self) -> list[int]:
        """Wait for dead processes; return the places that have become empty."""
        dead = self._children.reap()
        empty = [place for place, member in self.members.items() if member.pid in dead]
        for place in empty:
            member = self.members.pop(place)
            member.open_accounts(self._load.accounts)
            self._appended_before += member.appended
            member.close()
        return empty

    def finish(self, patience_s: float) -> None:
        """Make all producers flush, close and exit; one that does not is stuck."""
        self._children.continue_due(float("inf"))
        for member in self.members.values():
            self._children.ask_to_end(member.pid)  # a second time changes nothing
        deadline = time.monotonic() + patience_s
        while self.members and time.monotonic() < deadline:
            self.reap()
            time.sleep(_LOOK_EVERY_S)
        for member in self.members.values():
            self._children.abort(member.pid, f"did not flush and close within {patience_s:.0f} s")
