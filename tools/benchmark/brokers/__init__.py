"""The brokers that contestants send to, each in processes of its own, which are told by a pipe what to do."""

from __future__ import annotations

from tools.benchmark.brokers.host import APACHE, SINK, TITLES, Broker

__all__ = ["APACHE", "SINK", "TITLES", "Broker"]
