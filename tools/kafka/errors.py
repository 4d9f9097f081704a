"""Errors of a local cluster."""

from __future__ import annotations


class KafkaToolError(Exception):
    """The local cluster failed; the message has what, why and where to look. All of this package raises it."""


class KafkaMissingError(KafkaToolError):
    """Apache Kafka is not available on this machine; the message has what is missing and how to get it."""
