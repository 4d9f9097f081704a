"""Opens the sender's log: a rotating file, a named file, or none.

A sender has no terminal, and is often gone by the time a user asks why records failed. So it writes a log unless
``sender.log.file`` is ``none``.

An outage repeats the same failure for each batch. So a call that can repeat gives its kind, ``extra={"seldom": kind}``,
and `SELDOM` lets one line of a kind pass a minute. The sender logs how many it dropped a minute later, or when it ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from typing import Final, NamedTuple

from shmaccum.config import ProducerConfig
from shmaccum.config.settings import NO_LOG
from shmaccum.errors import ConfigError, SenderError, SlabError
from shmaccum.shm.files import open_regular
from shmaccum.shm.names import slab_names

LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
MAX_BYTES: Final = 1 << 20
"""A log that would grow beyond it replaces ``NAME.log.1``."""
SELDOM_S: Final = 60.0
_MOST_KINDS: Final = 4096
"""Bounds the memory: a kind can name a topic."""
_KEPT_S: Final = 30 * 86_400
"""A log that no sender has written to for this long is removed."""


class Seldom(logging.Filter):
    """Lets one line of a kind pass a minute, with the number of those dropped before it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self._kinds: dict[object, _Passed] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged; several handlers can ask."""
        kind = getattr(record, "seldom", None)
        if kind is None:
            return True
        if "passes" not in vars(record):
            vars(record)["passes"] = self._passes(kind, record)
        return bool(vars(record)["passes"])

    def count_dropped(self, *, of_all: bool = False) -> None:
        """Log how many lines were dropped behind each that passed a minute ago; or behind all, at the end."""
        now_s = self.clock()
        for kind, last in list(self._kinds.items()):
            if last.dropped and (of_all or now_s >= last.at_s + SELDOM_S):
                self._kinds[kind] = last._replace(at_s=now_s, dropped=0)
                logging.getLogger(last.logger).log(
                    last.level, "%s (%s more like it since then)", last.text, f"{last.dropped:,}"
                )

    def _passes(self, kind: object, record: logging.LogRecord) -> bool:
        now_s = self.clock()
        last = self._kinds.get(kind)
        if last is not None and now_s < last.at_s + SELDOM_S:
            self._kinds[kind] = last._replace(dropped=last.dropped + 1)
            return False
        if len(self._kinds) >= _MOST_KINDS:
            self.count_dropped(of_all=True)
            self._kinds.clear()
        text = record.getMessage()
        self._kinds[kind] = _Passed(now_s, 0, record.name, record.levelno, text)
        if last is not None and last.dropped:
            record.msg, record.args = f"{text} ({last.dropped:,} more like it since the last such line)", ()
        return True


class _Passed(NamedTuple):
    """A line that passed: when, how many of its kind were dropped since then, its logger, level and text."""

    at_s: float
    dropped: int
    logger: str
    level: int
    text: str


SELDOM: Final = Seldom()
"""Of all handlers of a sender."""


class _RotatingFile(RotatingFileHandler):
    """The rotating default log. Only its owner can read it, since no user asked for it."""

    mode_of_file = 0o600

    def _open(self) -> TextIOWrapper:
        descriptor = open_regular(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, self.mode_of_file)
        return open(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; make the file again if it was removed, as by a container that has the same home."""
        try:
            os.lstat(self.baseFilename)
        except FileNotFoundError:
            stream, self.stream = self.stream, None  # the handler opens it again
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        except OSError:
            pass  # it is there, for all we know
        super().emit(record)


class _NamedFile(_RotatingFile):
    """The log that ``sender.log.file`` names, never rotated; other users can read it if the umask lets them."""

    mode_of_file = 0o644


def default_directory() -> str:
    """Return the directory of the default logs, by the XDG specification. Raises RuntimeError: the user has no home."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        home = os.path.expanduser("~")
        if home == "~":
            raise RuntimeError("the user has no home")
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "shmaccum")


def log_path(config: ProducerConfig) -> str:
    """Return a sender's log file with these settings; empty for none. Raises RuntimeError: the user has no home."""
    named = config.sender_log_file
    if named:
        return "" if named == NO_LOG else named
    return os.path.join(default_directory(), f"{config.slab_name(os.geteuid())}.log")


def begin_log(config: ProducerConfig) -> str:
    """Send this process's log messages to the file of the settings; return that, or "none" and why.

    Raises:
        ConfigError: this user cannot write to the file of ``sender.log.file``, or it is not a regular file.
        SenderError: it cannot be opened for another reason.
    """
    named = config.sender_log_file
    if named == NO_LOG:
        return f"{NO_LOG}, as sender.log.file says"
    if named:
        try:
            _log_to(_NamedFile(named))
        except (PermissionError, IsADirectoryError) as error:
            raise ConfigError(_unusable(named, error)) from error
        except OSError as error:  # of the host: the same settings can do later
            raise SenderError(_unusable(named, error)) from error
        return named
    try:
        path = log_path(config)
        directory = default_directory()
        os.makedirs(directory, mode=0o700, exist_ok=True)
        _remove_old(directory)
        _log_to(_RotatingFile(path, maxBytes=MAX_BYTES, backupCount=1))
    except (OSError, RuntimeError) as error:
        # A daemon's user may have no writable home. A default log must not keep records from being sent.
        return f"{NO_LOG}: {error}; set sender.log.file to a file that this user can write"
    return path


def _unusable(named: str, error: OSError) -> str:
    return (
        f"sender.log.file = {named!r} cannot be used: {error.strerror}; name a regular file that user id "
        f"{os.geteuid()} can write"
    )


def _log_to(handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    handler.addFilter(SELDOM)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def _remove_old(directory: str) -> None:
    """Remove logs unwritten for `_KEPT_S`: slabs' names change with their settings, and leave logs behind.

    Keep those of slabs that exist: a sender without trouble writes nothing for months.
    """
    try:
        in_use = set(slab_names())
    except SlabError:  # whose attach says why
        return
    for entry in os.scandir(directory):
        slab, dot, _ = entry.name.partition(".log")
        if not dot or slab in in_use:
            continue
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT_S:
                os.unlink(entry.path)
