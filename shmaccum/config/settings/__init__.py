"""The producer's settings: Kafka's names and Kafka 4's defaults, and some of our own.

Only definitions, one module for each group. If a range or a meaning differs from Kafka's, its validator or its
documentation gives the reason.
"""

from __future__ import annotations

from shmaccum.config.settings.accumulator import AccumulatorSettings
from shmaccum.config.settings.connection import ConnectionSettings
from shmaccum.config.settings.delivery import DeliverySettings
from shmaccum.config.settings.log import LogSettings
from shmaccum.config.settings.producer import OwnSettings
from shmaccum.config.settings.security import SecuritySettings
from shmaccum.config.settings.slab import SlabSettings


class ProducerSettings(
    AccumulatorSettings,
    DeliverySettings,
    ConnectionSettings,
    SecuritySettings,
    LogSettings,
    OwnSettings,
    SlabSettings,
):
    """All settings (``org.apache.kafka.clients.producer.ProducerConfig``; for the log, ``LogConfig``)."""

    __slots__ = ()

    @property
    def slab_memory(self) -> int:
        """Bytes for batches in one slab: ``buffer.memory``, which the shards divide among them."""
        return self.buffer_memory // self.shmaccum_shards

    @property
    def has_record_batches(self) -> bool:
        """Whether ``message.format.version`` is 0.11 or later, the format v2 of KIP-98."""
        version = self.message_format_version
        if version.startswith("v"):
            return version == "v2"
        major, minor = version.split("-")[0].split(".")[:2]
        return (int(major), int(minor)) >= (0, 11)
