"""The definition of a job, and the list of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

Options = dict[str, str]

PARTITIONS: Final = 3
"""Of every topic."""


@dataclass(frozen=True)
class Where:
    """The resources of one run of a job.

    Attributes:
        topics: their names.
        directory: for files and checkpoints.
    """

    topics: tuple[str, ...]
    directory: Path

    @property
    def topic(self) -> str:
        """The first topic."""
        return self.topics[0]


Function = Callable[[Any, str, Options, Where], None]
"""``job(spark, format, options, where)``."""


class Order(Enum):
    """The scope in which both formats must write records in the same order."""

    NONE = "none"
    KEY = "of a key"
    PARTITION = "in a partition"


@dataclass(frozen=True)
class Job:
    """A job, and what is known about it.

    Attributes:
        run: the job.
        values: of the records that are to be in its topics, in any order; none for a job that both refuse.
        topics: how many topics it has.
        exists: whether the topics are there.
        placed: keys or a column decide on the partition, so it must be the same.
        order: where the order must be the same.
        differs: whether shmaccum is known to do something else.
        note: what is different, or what the job needs besides the word.
    """

    run: Function
    values: tuple[bytes | None, ...]
    topics: int
    exists: bool
    placed: bool
    order: Order
    differs: bool
    note: str

    @property
    def name(self) -> str:
        """The function's name."""
        return self.run.__name__

    @property
    def title(self) -> str:
        """What it does, in a line."""
        return (self.run.__doc__ or self.name).splitlines()[0].rstrip(".")


JOBS: Final[dict[str, Job]] = {}
"""All jobs by their names, in the order in which they are run."""


def job(
    values: Iterable[bytes | None] = (),
    *,
    topics: int = 1,
    exists: bool = True,
    placed: bool = False,
    order: Order = Order.NONE,
    differs: bool = False,
    note: str = "",
) -> Callable[[Function], Function]:
    """Add a function to `JOBS`; the arguments are the attributes of `Job`."""

    def add(function: Function) -> Function:
        JOBS[function.__name__] = Job(function, tuple(values), topics, exists, placed, order, differs, note)
        return function

    return add


def numbers(count: int) -> list[bytes]:
    """Return the numbers below ``count`` as text."""
    return [b"%d" % number for number in range(count)]
