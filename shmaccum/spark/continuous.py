"""Refuses ``trigger(continuous=...)``, with which Spark never runs the tasks of a Python sink.

Spark then commits epochs whose rows were never written, and does not pass the trigger to the sink. Two places can see
it:

* pyspark's ``DataStreamWriter``, in a driver or Connect client that registers the data source: `refuse_at_trigger`.
* The driver's process that plans a query. Its JVM has a thread for each continuous query, which Spark starts before it
  plans, and the query's checkpoint has no offsets yet: `refuse_at_start`.

Later it is too late: Spark logs an error of the process that commits, and continues.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from shmaccum.errors import ConfigError
from shmaccum.procfs import ancestors

logger = logging.getLogger(__name__)

FORMAT: Final = "shmaccum"

_WRITERS: Final = ("pyspark.sql.streaming.readwriter", "pyspark.sql.connect.streaming.readwriter")
_NOTED: Final[tuple[tuple[str, str, Callable[..., Any]], ...]] = (
    ("trigger", "_shmaccum_continuous", lambda **kwargs: kwargs.get("continuous") is not None),
    ("format", "_shmaccum_format", lambda source: source),
)
"""Method -> the attribute that keeps what it was given."""
_NOT_SUPPORTED: Final = (
    "trigger(continuous=...) is not supported: Spark never runs the tasks of a Python sink with it; use "
    "trigger(processingTime='1 second'), or format('kafka')"
)
_QUERY_THREAD: Final = "stream execution thread for"[:15]
"""Name of the thread that Spark has for each query (``StreamExecution``); Linux keeps 15 bytes."""
_CONTINUOUS_THREAD: Final = "epoch update thread for"[:15]
"""Name of the thread that Spark adds for each continuous query (``ContinuousExecution``)."""


def refuse_at_trigger() -> None:
    """Let pyspark's ``DataStreamWriter`` raise as soon as it has this format and a continuous trigger."""
    for module in _WRITERS:
        if module in sys.modules:
            writer = sys.modules[module].DataStreamWriter
            for name, attribute, noted in _NOTED:
                if not hasattr(method := getattr(writer, name), "_shmaccum"):
                    setattr(writer, name, _noting(method, attribute, noted))


def refuse_at_start(checkpoint: str | None) -> None:
    """Refuse a query with a continuous trigger, and one that would skip the rows of an earlier such query.

    Where other queries of the JVM are continuous, but not all, only the checkpoint tells which one this is.

    Raises ConfigError: the query is continuous, or the checkpoint has epochs that were not written.
    """
    queries, continuous = _query_threads()
    epochs = _Epochs.of(checkpoint)
    if continuous and (epochs.are_continuous if epochs is not None else continuous >= queries):
        raise ConfigError(_NOT_SUPPORTED)
    if continuous and epochs is None:
        logger.warning(
            "%d of %d queries have a continuous trigger. Whether this one has is unknown, since its checkpoint %s is "
            "not a directory of this host. If it has, it writes nothing.",
            continuous,
            queries,
            checkpoint,
        )
    if epochs is not None and (skipped := epochs.skipped()):
        raise ConfigError(
            f"checkpoint {checkpoint}: epochs {skipped[0]} to {skipped[-1]} are of trigger(continuous=...), and were "
            "never written; this query would skip their rows. To begin with these rows, delete the files from "
            f"{skipped[0]} and .{skipped[0]}.crc on in the checkpoint's directory offsets"
        )


class _Epochs:
    """Numbers of the epochs, or micro-batches, in a checkpoint."""

    def __init__(self, directory: Path) -> None:
        self._offsets = directory / "offsets"
        self._begun = _numbers(self._offsets)
        self._committed = max(_numbers(directory / "commits"), default=-1)

    @classmethod
    def of(cls, checkpoint: str | None) -> _Epochs | None:
        """Return those of a checkpoint; None if it is not here."""
        if not checkpoint:
            return None
        url = urlsplit(checkpoint)
        if url.scheme not in ("", "file"):
            return None
        directory = Path(unquote(url.path) if url.scheme else checkpoint)
        return cls(directory) if (directory / "metadata").exists() else None  # Spark writes it before all else

    @property
    def are_continuous(self) -> bool:
        """Whether the query that is planned is continuous.

        A micro-batch is planned after its offsets are stored, and before it is committed; an epoch before its offsets.
        """
        newest = max(self._begun, default=-1)
        return newest <= self._committed or self._is_epoch(newest)

    def skipped(self) -> list[int]:
        """Return epochs that were not committed, and that a micro-batch query takes for written.

        It writes from the newest offsets but one up to the newest.
        """
        begun = sorted(number for number in self._begun if number > self._committed)[:-1]
        return begun if any(self._is_epoch(number) for number in begun) else []

    def _is_epoch(self, number: int) -> bool:
        """Return whether a continuous query stored these offsets: unlike a micro-batch's, they have no metadata."""
        lines = (self._offsets / str(number)).read_text().split("\n")
        return len(lines) > 1 and not lines[1]


def _numbers(directory: Path) -> list[int]:
    names = os.listdir(directory) if directory.exists() else []
    return [int(name) for name in names if name.isdecimal()]


def _query_threads() -> tuple[int, int]:
    """Return how many queries this process's JVM runs, and how many of them are continuous.

    The JVM is the nearest ancestor that runs queries. If none is found, both are 0.
    """
    for pid in ancestors():
        names = _thread_names(pid)
        if _QUERY_THREAD in names:
            return names.count(_QUERY_THREAD), names.count(_CONTINUOUS_THREAD)
    return 0, 0


def _thread_names(pid: int) -> list[str]:
    """Return the names of a process's threads, as they were at one time."""
    while True:
        try:
            return [(task / "comm").read_text().rstrip("\n") for task in Path(f"/proc/{pid}/task").iterdir()]
        except (FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile; a mixture would count wrongly
            if not Path(f"/proc/{pid}").exists():
                return []


def _noting(method: Callable[..., Any], attribute: str, noted: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of ``DataStreamWriter`` that keeps what it is given, and refuses the two together."""

    @functools.wraps(method)
    def note(writer: Any, *args: Any, **kwargs: Any) -> Any:
        setattr(writer, attribute, noted(*args, **kwargs))
        _refuse(writer)
        return method(writer, *args, **kwargs)

    note._shmaccum = True  # type: ignore[attr-defined]
    return note


def _refuse(writer: Any) -> None:
    """Raise if a ``DataStreamWriter`` has both this format and a continuous trigger."""
    is_ours = getattr(writer, "_shmaccum_format", "").lower() == FORMAT
    if is_ours and getattr(writer, "_shmaccum_continuous", False):
        raise ConfigError(_NOT_SUPPORTED)
