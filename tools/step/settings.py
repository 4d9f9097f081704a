"""The settings of a point's slab: small, for few steps and little memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig

TOPIC: Final = "crash"
PARTITIONS: Final = tuple(TopicPartition(TOPIC, number) for number in range(2))
SLOT: Final = 1024
SLOTS: Final = 8
LARGEST: Final = 600
"""Bytes above which a refusing log refuses a batch."""
INVALID: Final = b"invalid"
"""A record that it refuses."""
TOO_LARGE: Final = 700
"""Bytes of a record that it refuses even alone, and that fits a slot with others."""


def config_of(name: str, log_dir: Path, settings: Mapping[str, object]) -> ProducerConfig:
    """Return the settings of a slab, with an operation's own."""
    return ProducerConfig.parse(
        {
            "shmaccum.name": name,
            "transport": "log",
            "log.dir": str(log_dir),
            "num.partitions": len(PARTITIONS),
            "batch.size": SLOT,
            "shmaccum.slot.size": SLOT,
            "buffer.memory": SLOTS * SLOT,
            "linger.ms": 0,
            "shmaccum.checksum": "append",  # its stores are then among the others
            "shmaccum.max.processes": 6,
            "shmaccum.max.topics": 3,
            "shmaccum.max.partitions": 6,
            **settings,
        }
    )


def value(text: str, size: int = 0) -> str:
    """Return a record's value that its text identifies, and that compresses well."""
    return text.ljust(size, ".")


PATIENCE_S: Final = 0.05
"""How long a call waits for a lock or for memory beside a stopped process."""
HALF: Final = SLOT // 2
"""Two records of that size do not fit a slot."""
LARGE: Final = 2 * SLOT
"""A record of that size takes three slots."""
