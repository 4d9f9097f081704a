"""Where the sender's log goes: a file that rotates beside the user's other logs, one that is named, or none.

A sender has no terminal, and by the time somebody asks why records failed it is often gone: so it writes a log unless
it is told not to.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from shmaccum.config import ProducerConfig
from shmaccum.config.settings.slab import NO_LOG
from shmaccum.errors import ConfigError
from shmaccum.regularfile import open_regular

LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
MAX_BYTES: Final = 1 << 20
"""A log that would grow beyond it becomes ``NAME.log.1``, and what had that name is gone."""
_KEPT_S: Final = 30 * 86_400
"""The logs of slabs that nobody has used for so long are removed."""


class _RotatingFile(RotatingFileHandler):
    """A rotating log that only its owner can read: it is written without being asked for."""

    def _open(self) -> TextIOWrapper:
        return _opened(self.baseFilename, 0o600)


class _NamedFile(logging.FileHandler):
    """The log that ``sender.log.file`` names, which others can read if the umask lets them."""

    def _open(self) -> TextIOWrapper:
        return _opened(self.baseFilename, 0o644)


def _opened(path: str, mode: int) -> TextIOWrapper:
    descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)
    return open(descriptor, "a", encoding="utf-8", errors="backslashreplace")


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
        ConfigError: this user may not write to the file that ``sender.log.file`` names, or it is not a regular one.
        OSError: it cannot be written for another reason.
    """
    named = config.sender_log_file
    if named == NO_LOG:
        return f"{NO_LOG}, by sender.log.file"
    if named:
        try:
            _log_to(_NamedFile(named))
        except PermissionError as error:
            raise ConfigError(
                f"sender.log.file = {named!r} cannot be used: {error.strerror}; name a regular file, to which user id "
                f"{os.geteuid()} may write"
            ) from error
        return named
    try:
        path = log_path(config)
        directory = default_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old(directory)
        _log_to(_RotatingFile(path, maxBytes=MAX_BYTES, backupCount=1))
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
