"""The groups of settings in the documentation."""

from __future__ import annotations

from enum import StrEnum


class Group(StrEnum):
    """The parts of the documentation, in its order."""

    ACCUMULATOR = "Accumulator"
    DELIVERY = "Delivery"
    CONNECTION = "Connection to brokers"
    SECURITY = "Security"
    LOG_TRANSPORT = "Log transport"
    PRODUCER = "Producer"
    SLAB = "Slab and sender"
