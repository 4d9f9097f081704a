"""The producer's settings: Kafka's, by Kafka's names, with the defaults of Kafka 4, and a few of our own.

Nothing but definitions, a module for each group. Where a range or a meaning differs from Kafka's, its validator
or its documentation says why.
"""

from __future__ import annotations

from shmaccum.config.settings.accumulator import AccumulatorSettings
from shmaccum.config.settings.connection import ConnectionSettings
from shmaccum.config.settings.delivery import DeliverySettings
from shmaccum.config.settings.group import Group
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
    """What can be set (``org.apache.kafka.clients.producer.ProducerConfig``; for the log, ``LogConfig``)."""

    __slots__ = ()


__all__ = ["Group", "ProducerSettings"]
