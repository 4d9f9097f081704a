"""The shared state of the accumulator: a slab's memory pool, its partitions and its record format.

Both halves work on it: `RecordAccumulator` in the producers, `SenderAccumulator` in the sender. No process holds two
locks at once: memory is allocated before a partition's lock is acquired, and freed after that is released.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from shmaccum import __version__
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.partition_queue import rebuild_stripe
from shmaccum.config import ProducerConfig
from shmaccum.pool.buffer_pool import BufferPool, slot_size_for
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import message_format_magic, record_format
from shmaccum.shm.layout import LOCK_STRIPES, STRIPES, Geometry
from shmaccum.shm.reclaim import attach_reclaiming, sweep
from shmaccum.shm.shared_settings import UserSettings
from shmaccum.shm.slab import Slab

_REDO_SHARE: Final = 8
"""Redo areas take no more than this part of ``buffer.memory`` in a slab whose maker does not compress."""


class AccumulatorState:
    """What a process sees of a slab's batches, whichever half of the accumulator it runs.

    Args:
        slab: attached; the caller detaches it.
        config: the settings that all users of the slab share.
        while_waiting: called before a wait for memory and now and then during it, under no lock.

    Attributes:
        slab: where the batches are.
        pool: the slab's BufferPool.
        map: its topics and partitions.
        format: of its records.
    """

    def __init__(self, slab: Slab, config: ProducerConfig, while_waiting: Callable[[], None] | None = None) -> None:
        self.slab: Final = slab
        self.pool: Final = BufferPool(config.buffer_memory, config.batch_size, slab=slab, while_waiting=while_waiting)
        self.map: Final = PartitionMap(slab)
        self.format: Final = record_format(message_format_magic(config.message_format_version))
        for stripe in range(STRIPES):
            slab.locks[LOCK_STRIPES + stripe].rebuild = _stripe_rebuilder(slab, stripe)


def _stripe_rebuilder(slab: Slab, stripe: int) -> Callable[[], None]:
    return lambda: rebuild_stripe(slab, stripe)


def levels_of(config: ProducerConfig) -> dict[CompressionType, int]:
    """Return the level of each compression that has levels (KIP-390)."""
    return {
        CompressionType.GZIP: config.compression_gzip_level,
        CompressionType.LZ4: config.compression_lz4_level,
        CompressionType.ZSTD: config.compression_zstd_level,
    }


def attach_for(config: ProducerConfig, *, decides: bool = True, sender: bool = False) -> Slab:
    """Attach this process to the slab of a configuration, creating it if there is none; empty slabs of the dead go.

    Args:
        config: the settings.
        decides: whether its values of the settings that the users of a slab share are to hold from now on.
        sender: whether this process is to be the slab's sender.

    Raises:
        As `attach_reclaiming`.
    """
    uid = os.geteuid()
    name = config.slab_name(uid)
    sweep(spare=name)
    mine = UserSettings(config.fixed_settings(), config.shared_settings(), __version__, decides)
    return attach_reclaiming(name, slab_geometry(config), config.slab_digest(uid), mine, sender=sender)


def slab_geometry(config: ProducerConfig) -> Geometry:
    """Return the layout of a slab that is made with these settings.

    The redo areas, without which producers do not compress, depend on who makes it: they are left out only where they
    would take much memory, and the maker does not compress.
    """
    slot_size = slot_size_for(config.batch_size)
    ahead = record_format(message_format_magic(config.message_format_version)).compresses_ahead
    are_cheap = STRIPES * slot_size <= config.buffer_memory // _REDO_SHARE
    producers_compress = ahead and (are_cheap or config.compression_type != str(CompressionType.NONE))
    return Geometry(
        slot_size,
        max(1, config.buffer_memory // slot_size),
        config.shmaccum_max_processes,
        config.shmaccum_max_topics,
        config.shmaccum_max_partitions,
        slot_size if producers_compress else 0,
    )
