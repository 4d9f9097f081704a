"""librdkafka's statistics, of what the slab knows: the JSON document that ``stats_cb`` gets.

Names and units are those of librdkafka's STATISTICS.md; a field that the slab does not know is missing. What the sender
does counts for all programs of the slab, so these numbers must not be added over programs.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from shmaccum.shm.broker_table import BrokerInfo, brokers
from shmaccum.shm.distribution import Distribution, least_of
from shmaccum.shm.layout import BrokerState
from shmaccum.shm.lifecycle import look

if TYPE_CHECKING:
    from shmaccum.producer.producer import Producer
    from shmaccum.shm.inspection import PartitionInfo

_STATES: Final = {
    BrokerState.IDLE: "INIT",
    BrokerState.CONNECTING: "CONNECT",
    BrokerState.READY: "UP",
    BrokerState.FAILED: "DOWN",
}
_PERCENTILES: Final = (50, 75, 90, 95, 99, 99.99)


class Statistics:
    """Makes the documents of one producer, ``interval_ms`` milliseconds apart."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_s = interval_ms / 1000
        self._began = time.monotonic()
        self._due = self._began + self._interval_s
        self._before: dict[str, Distribution] = {}
        """Each broker's round trips until the last document."""

    def due(self, producer: Producer, waiting: int, max_messages: int) -> str:
        """Return the next document; empty until it is time.

        Args:
            producer: whose slab it is about.
            waiting: messages that are not reported.
            max_messages: most of them.

        Raises SlabDamagedError.
        """
        now = time.monotonic()
        if now < self._due:
            return ""
        self._due = now + self._interval_s  # from now: a program that polls rarely gets one, not all that it missed
        config = producer.config
        document = {
            "name": f"{config.client_id}#{producer._slab.name}",
            "client_id": config.client_id,
            "type": "producer",
            "ts": int(now * 1_000_000),
            "time": int(time.time()),
            "age": int((now - self._began) * 1_000_000),
            "msg_cnt": waiting,
            "msg_max": max_messages,
            "msg_size_max": config.buffer_memory,
        }
        with look(producer._slab.name) as view:
            found = brokers(view.words, view.geometry)
            partitions = [each for entries in view.all_partitions() for each in entries]
        totals = {
            "tx": sum(each.requests for each in found),
            "tx_bytes": sum(each.bytes_out for each in found),
            "rx": sum(each.answers for each in found),
            "rx_bytes": sum(each.bytes_in for each in found),
            "txmsgs": sum(each.records_sent for each in partitions),
            "txmsg_bytes": sum(each.bytes_sent for each in partitions),
        }
        shown = dict(map(self._broker, found))
        return json.dumps({**document, **totals, "brokers": shown, "topics": _topics(partitions)})

    def _broker(self, broker: BrokerInfo) -> tuple[str, dict[str, Any]]:
        """Return a broker's name, and its statistics; those of round trips since the last time."""
        name = f"{broker.address}/{broker.node if broker.node >= 0 else 'bootstrap'}"
        latency = broker.latency - self._before.get(name, Distribution())
        self._before[name] = broker.latency
        return name, {
            "name": name,
            "nodeid": max(-1, broker.node),
            "nodename": broker.address,
            "source": "learned" if broker.node >= 0 else "configured",
            "state": _STATES[broker.state],
            "stateage": max(0, time.time_ns() // 1000 - broker.since_ms * 1000),
            "waitresp_cnt": broker.in_flight,
            "tx": broker.requests,
            "txbytes": broker.bytes_out,
            "rx": broker.answers,
            "rxbytes": broker.bytes_in,
            "connects": broker.connections + broker.failures,
            "disconnects": broker.closed,
            "rtt": _window(latency),
        }


def _window(microseconds: Distribution) -> dict[str, int]:
    first = next((bucket for bucket, count in enumerate(microseconds.counts) if count), 0)
    return {
        "min": least_of(first),
        "max": microseconds.percentile(100),
        "avg": int(microseconds.mean),
        "sum": microseconds.total,
        "cnt": microseconds.count,
        **{f"p{percent}".replace(".", "_"): microseconds.percentile(percent) for percent in _PERCENTILES},
    }


def _topics(entries: list[PartitionInfo]) -> dict[str, Any]:
    """Return the statistics of each topic's partitions; a partition can have several entries, one without lane."""
    topics: dict[str, Any] = {}
    for entry in entries:
        topic = topics.setdefault(entry.topic, {"topic": entry.topic, "partitions": {}})
        counts = {
            "msgq_cnt": entry.queued_records,
            "msgq_bytes": entry.queued_bytes,
            "msgs_inflight": entry.in_flight_records,
            "txmsgs": entry.records_sent,
            "txbytes": entry.bytes_sent,
        }
        leader = -1 if entry.leader is None else entry.leader
        shown = topic["partitions"].setdefault(
            str(entry.partition),
            {"partition": entry.partition, "broker": leader, "leader": leader, **dict.fromkeys(counts, 0)},
        )
        for name, count in counts.items():
            shown[name] += count
    return topics
