"""Producers with a real sender for the commands to look at, and the commands themselves as processes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fixture_types import Command
from slab_settings import Settings
from slab_settings import settings as settings

from shmaccum.shm import names


@pytest.fixture(autouse=True)
def unfiltered_logs() -> Iterator[None]:
    """Undo what `shmaccum sender` does to the handlers of this process: later tests count what is logged."""
    handlers = [(handler, list(handler.filters)) for handler in logging.getLogger().handlers]
    yield
    for handler, filters in handlers:
        handler.filters[:] = filters


@pytest.fixture
def options(settings: Settings) -> list[str]:
    """Return the settings as options of the command."""
    return [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]


@pytest.fixture
def foreign(slab_name: str) -> Iterator[None]:
    """Make a segment that is no slab of shmaccum."""
    path, lock = Path(names.segment_path(slab_name)), Path(names.lock_path(slab_name))
    path.write_bytes(b"x" * 5000)
    path.chmod(0o600)
    lock.touch(mode=0o600)
    yield
    path.unlink()
    lock.unlink()


@pytest.fixture
def shmaccum() -> Command:
    """Return ``with shmaccum(*arguments) as process``: the command, killed if it still runs when the block ends."""

    @contextmanager
    def run(*arguments: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, "-m", "shmaccum", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    return run
