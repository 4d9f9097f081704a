"""Shared state of both halves of the accumulator: pool, partitions, record format.

`RecordAccumulator` uses it in the producers, `SenderAccumulator` in the sender. No process holds two locks at once:
it allocates slots before it acquires a partition's lock, and frees slots after it has released that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from shmaccum._core import Geometry
from shmaccum.abi import VERSION
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.config import ProducerConfig
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import message_format_magic, record_format
from shmaccum.shm.lifecycle import detach
from shmaccum.shm.reclaim import attach_reclaiming, check_shards, choose_shard, sweep
from shmaccum.shm.shared_settings import UserSettings
from shmaccum.shm.slab import Slab


class AccumulatorState:
    """One process's view of a slab's batches, for either half of the accumulator.

    The caller has attached the slab, and detaches it. ``while_waiting`` is called before and during a wait for memory,
    under no lock. All states of this process share the map of topics and partitions.
    """

    def __init__(self, slab: Slab, config: ProducerConfig, while_waiting: Callable[[], None] | None = None) -> None:
        self.slab: Final = slab
        self.pool: Final = BufferPool(slab, while_waiting, config.max_block_ms)
        self.map: Final = slab.companion(PartitionMap)
        self.format: Final = record_format(message_format_magic(config.message_format_version))


def levels_of(config: ProducerConfig) -> dict[CompressionType, int]:
    """Return the level of each compression type that has levels (KIP-390)."""
    return {
        CompressionType.GZIP: config.compression_gzip_level,
        CompressionType.LZ4: config.compression_lz4_level,
        CompressionType.ZSTD: config.compression_zstd_level,
    }


def attach_for(config: ProducerConfig, *, decides: bool = True, sender: bool = False) -> Slab:
    """Attach this process to a configuration's slab, or create it; sweep slabs of dead processes.

    If the configuration has several shards, the slab is that of one of them: `ProducerConfig.in_slab`.

    Raises as `attach_reclaiming` and `check_shards`. ``decides``: its values of the shared settings replace those in
    the slab.
    """
    uid = os.geteuid()
    mine = UserSettings(config.fixed_settings(), config.shared_settings(), VERSION, decides)
    slab = None
    try:
        with choose_shard(config.slab_names(uid)) as name:
            sweep(spare=name)
            digest = config.in_slab(name).slab_digest(uid)
            slab = attach_reclaiming(name, slab_geometry(config), digest, mine, sender=sender)
            if decides and config.shmaccum_name:  # a derived name differs if the settings do
                check_shards(name, mine)
    except BaseException:
        if slab is not None:
            detach(slab)  # an interrupt, after the attach
        raise
    return slab


def slab_geometry(config: ProducerConfig) -> Geometry:
    """Return the layout of a slab created with these settings."""
    return Geometry(
        config.shmaccum_slot_size,
        config.slab_memory // config.shmaccum_slot_size,
        config.shmaccum_max_processes,
        config.shmaccum_max_topics,
        config.shmaccum_max_partitions,
        config.shmaccum_max_transactions,
        config.shmaccum_checksum == "append",
    )
