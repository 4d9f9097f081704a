"""The report of a slab: its lanes, its JSON, and its numbers for people."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from fixture_types import Link, Start
from processes import wait_until
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.accumulator.state.lanes import LaneLease, LaneTable
from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import NetworkError
from shmaccum.observe.bottleneck import Bottleneck, Bound
from shmaccum.observe.report import UnreadableSlab, as_json, report
from shmaccum.observe.wording import count, in_bytes, span
from shmaccum.shm.broker_table import BrokerJournal
from shmaccum.shm.incidents import Incidents


def open_lane(producer: Producer, transactional_id: str) -> LaneLease:
    """Lease a lane, and open it for one partition of topic ``t``."""
    state = producer._accumulator.state
    lease = LaneTable(state.slab, state.map).lease(transactional_id)
    lease.open(7, 3, 2)
    lease.queue(state.map.queues[TopicPartition("t", 0)])
    return lease


def hold_lane(link: Link, settings: Settings) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"x", partition=0).get(timeout=30)
        open_lane(producer, "orders-2")
        link.send(os.getpid())
        link.recv()


def test_lanes_in_use_and_the_partitions_of_their_transactions(
    settings: Settings, slab_name: str, start: Start
) -> None:
    def entries() -> list[tuple[int, str | None]]:
        return [(each.partition, each.transactional_id) for each in report(slab_name).partitions]

    def held() -> list[tuple[str, int | None, bool]]:
        return [(each.transactional_id, each.pid, each.alive) for each in report(slab_name).lanes]

    with Producer(settings) as producer:
        producer.send("t", b"x", partition=0).get(timeout=30)
        assert report(slab_name).lanes == []
        assert entries() == [(0, None), (1, None)]
        mine = open_lane(producer, "orders-1")
        other = start(hold_lane, settings)
        pid = other.hear()
        assert held() == [("orders-1", os.getpid(), True), ("orders-2", pid, True)]
        assert entries() == [(0, None), (0, "orders-1"), (0, "orders-2"), (1, None)]
        mine.close()
        closed, opened = report(slab_name).lanes
        assert (closed.producer_id, closed.producer_epoch, closed.opened_ms) == (None, None, None)
        assert (opened.producer_id, opened.producer_epoch) == (7, 3)
        mine.release()
        assert held() == [("orders-2", pid, True)]
        assert entries() == [(0, None), (0, "orders-2"), (1, None)]
        assert report(slab_name).tables.lane_entries == 2
        other.kill()
        wait_until(lambda: held() == [])  # the sender takes it away
        assert entries() == [(0, None), (1, None)]


def keys_of(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set()


def test_the_json_is_that_of_the_documentation(settings: Settings, slab_name: str) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"x").get(timeout=30)
        Incidents(producer._slab).note(NetworkError, "refused")
        BrokerJournal(producer._slab).broker(Node(1, "host", 9092)).answered(100, 2.5, 1.0)
        lane = open_lane(producer, "orders-1")
        bound = replace(report(slab_name), bottleneck=Bottleneck(Bound.MEMORY, "it is full", "get more"))
        slab = as_json([bound, UnreadableSlab("x", "why")])
        lane.release()
    slab = json.loads(json.dumps(slab))
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    distributions = re.findall(r"`([a-z_]+(?:_us|_permille|_bytes|_records))`", page)
    percentiles = re.findall(r"`(\w+)`", page.partition("## A distribution")[2])
    documented = {*re.findall(r"`(\w+)`", " ".join(rows)), *distributions, *percentiles}
    ours = slab["slabs"][0]
    assert len(ours.pop("metrics")) > 10
    assert keys_of(slab) - {"slabs"} | {"metrics", "level"} == documented
    assert [sorted(process["roles"]) for process in ours["processes"]] == [["producer"], ["sender"]]
    assert [(each["error"], each["text"]) for each in ours["incidents"]] == [("NetworkError", "refused")]
    (held,) = ours["lanes"]
    assert held.pop("opened_ms") >= ours["created_ms"]
    lane_of = {"transactional_id": "orders-1", "pid": os.getpid(), "alive": True, "error": None}
    assert held == lane_of | {"producer_id": 7, "producer_epoch": 3, "version": 2}
    topic = {"name": "t", "state": "known", "partitions": 2, "error": None}
    assert ours["topics"] == [topic | {"refused": {}, "refused_error": None, "refused_ms": 0}]


def test_numbers_for_people() -> None:
    sizes = {0: "0 B", 1023: "1,023 B", 1024: "1.0 KiB", 16384: "16.0 KiB", 5 << 30: "5.0 GiB", 5 << 43: "40,960.0 GiB"}
    assert {size: in_bytes(size) for size in sizes} == sizes
    spans = {900: "900 ms", 12_300: "12 s", 119_000: "119 s", 180_000: "3 min", 7_200_000: "2 h", 200_000_000: "2 days"}
    assert {time_ms: span(time_ms) for time_ms in spans} == spans
    counts = [count(0, "slot"), count(1, "slot"), count(2048, "slot"), count(2, "batch")]
    assert counts == ["0 slots", "1 slot", "2,048 slots", "2 batches"]
