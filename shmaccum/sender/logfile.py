"""Where the sender's log goes: a file that rotates beside the user's other logs, one that is named, or none.

A sender has no terminal, and by the time somebody asks why records failed it is often gone: so it writes a log unless
it is told not to.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from shmaccum.config import ProducerConfig
from shmaccum.config.settings.slab import NO_LOG

LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
MAX_BYTES: Final = 1 << 20
"""A log that would grow beyond it becomes ``NAME.log.1``, and what had that name is gone."""
_KEPT_S: Final = 30 * 86_400
"""The logs of slabs that nobody has used for so long are removed."""


class _PrivateRotatingFile(RotatingFileHandler):
    """A rotating log that only its owner can read, and that does not follow links: it is opened without being asked."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self.baseFilename, flags, 0o600)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise PermissionError(f"{self.baseFilename} is no file of ours")
            return open(descriptor, "a", encoding="utf-8", errors="backslashreplace")
        except BaseException:
            os.close(descriptor)
            raise


def default_directory() -> Path:
    """Return where logs go that have no file of their own, by the XDG base directory specification.

    Raises:
        RuntimeError: the user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "shmaccum"


def log_path(config: ProducerConfig) -> str:
    """Return the file that a sender with these settings would write to; empty if it would write to none.

    Raises:
        RuntimeError: the user has no home.
    """
    named = config.sender_log_file
    if named:
        return "" if named == NO_LOG else named
    return str(default_directory() / f"{config.slab_name(os.geteuid())}.log")


def begin_log(config: ProducerConfig) -> str:
    """Have this process's log messages go where the settings say.

    Returns:
        Where that is; or "none", and why.

    Raises:
        OSError: the file that ``sender.log.file`` names cannot be written.
    """
    named = config.sender_log_file
    if named == NO_LOG:
        return f"{NO_LOG}, by sender.log.file"
    if named:
        _log_to(logging.FileHandler(named))
        return named
    try:
        path = log_path(config)
        directory = default_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old(directory)
        _log_to(_PrivateRotatingFile(path, maxBytes=MAX_BYTES, backupCount=1))
    except (OSError, RuntimeError) as error:
        # A daemon's user may have no home that it can write to. Nobody asked for this log: records matter more.
        return f"{NO_LOG}: {error}; sender.log.file names another place"
    return path


def _log_to(handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def _remove_old(directory: Path) -> None:
    """Remove the logs that nobody has written to for long: slabs' names change with their settings."""
    for path in directory.glob("*.log*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < time.time() - _KEPT_S:
                path.unlink()
