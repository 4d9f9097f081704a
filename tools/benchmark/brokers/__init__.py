"""The brokers that contestants send to, in processes controlled through pipes."""

from __future__ import annotations

from tools.benchmark.brokers.host import APACHE, FIVE, SINK, TITLES, Broker

__all__ = ["APACHE", "FIVE", "SINK", "TITLES", "Broker"]
