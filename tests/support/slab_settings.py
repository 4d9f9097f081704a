"""Settings of a slab that is gone soon: a fixture for the directories whose conftest imports it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from producers import wait_until_gone

Settings = dict[str, object]


@pytest.fixture
def settings(tmp_path: Path, slab_name: str) -> Iterator[Settings]:
    """Return settings of producers; when the test ends, so must their sender."""
    yield {
        "transport": "log",
        "log.dir": tmp_path / "log",
        "shmaccum.name": slab_name,
        "sender.idle.ms": 50,
        "num.partitions": 2,
        "buffer.memory": 1 << 20,
    }
    wait_until_gone(slab_name)
