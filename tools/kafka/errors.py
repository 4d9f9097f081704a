"""What can go wrong with a local cluster."""

from __future__ import annotations


class KafkaToolError(Exception):
    """The local cluster cannot do what it was asked to; the message says what, why and where to look."""


class KafkaMissingError(KafkaToolError):
    """Apache Kafka cannot be had on this machine; the message says what is missing and how to get it."""
