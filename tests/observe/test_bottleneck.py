"""What bounds a slab, of reports made by hand; and of a broker that answers late."""

from __future__ import annotations

import inspect
import json
from typing import Any, TypeVar

import pytest
from fake_broker import FakeBroker, produced
from fixture_types import Capture
from processes import wait_until
from producers import wait_until_gone

from shmaccum import Producer
from shmaccum.cli.doctor import Level, slab_findings
from shmaccum.cli.main import main
from shmaccum.observe.bottleneck import Bottleneck, Bound, bottleneck
from shmaccum.observe.report import report
from shmaccum.shm.broker_table import BrokerInfo
from shmaccum.shm.inspection import PartitionInfo
from shmaccum.shm.layout import BrokerState
from tools.support.messages import PRODUCE

MIB = 1 << 20
Info = TypeVar("Info", PartitionInfo, BrokerInfo)


def info(kind: type[Info], **values: Any) -> Info:
    return kind(**dict.fromkeys(inspect.signature(kind).parameters, 0) | values)


def partition(queued: int = 2, in_flight: int = 0, **values: Any) -> PartitionInfo:
    values = {"leader": 1, "muted": False, "queued_bytes": queued * MIB} | values
    return info(PartitionInfo, queued_batches=queued, in_flight_batches=in_flight, **values)


def broker(state: BrokerState = BrokerState.READY, in_flight: int = 1, throttled_ms: int | None = None) -> BrokerInfo:
    return info(
        BrokerInfo, node=1, state=state, in_flight=in_flight, last_latency_us=100_500, throttled_ms=throttled_ms
    )


def bound(
    *partitions: PartitionInfo, of: BrokerInfo | None = None, used: int = 8, waiting: int = 0, **settings: object
) -> Bottleneck | None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return bottleneck(named, partitions, [of or broker()], used * MIB, 32 * MIB, waiting)


def test_nothing_waits_but_for_its_turn() -> None:
    assert bound() is None
    assert bound(partition(queued=1)) is None
    assert bound(partition(queued=0, in_flight=5), waiting=1) is None


@pytest.mark.parametrize("away", [{"leader": None}, {"leader": 2}, {"muted": True}])
def test_what_cannot_be_sent_is_no_bottleneck(away: dict[str, object]) -> None:
    other = info(BrokerInfo, node=2, state=BrokerState.CONNECTING)
    assert bottleneck({}, [partition(**away)], [broker(), other], 32 * MIB, 32 * MIB, 1) is None


def test_a_quota_is_no_bottleneck() -> None:
    """No setting of ours helps, and the verdict names it. After it, others can be one."""
    assert bound(partition(queued=30), of=broker(throttled_ms=4000)) is None
    assert bound(partition(queued=30), of=broker(throttled_ms=-1000)) is not None


def test_as_much_is_in_flight_as_may_be() -> None:
    found = bound(partition(in_flight=5), partition(in_flight=5), partition())
    assert found is not None
    assert found.bound is Bound.IN_FLIGHT
    assert found.text == "2 of 3 waiting partitions with as much in flight as may be, and answers after 100.5 ms"
    assert found.advice.startswith("raise max.request.size and batch.max.bytes")
    assert bound(partition(in_flight=5), max_in_flight_requests_per_connection=6) == bound(partition())


def test_without_idempotence_the_connection_has_the_limit() -> None:
    settings = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 3}
    found = bound(partition(in_flight=1), of=broker(in_flight=3), **settings)
    assert found is not None
    assert (found.bound, found.advice[:44]) == (Bound.IN_FLIGHT, "raise max.in.flight.requests.per.connection,")
    other = bound(partition(in_flight=1), of=broker(in_flight=2), **settings)
    assert other is not None
    assert other.bound is Bound.SENDER


def test_memory_is_full_of_what_is_in_flight() -> None:
    found = bound(partition(queued=1, in_flight=3), used=32, waiting=2)
    assert found == Bottleneck(
        Bound.MEMORY, "31.0 MiB of 32.0 MiB in flight, and 2 threads waiting", "raise buffer.memory, in a new slab"
    )


def test_the_sender_does_not_come_to_it() -> None:
    found = bound(partition(queued=30, in_flight=1), used=32, waiting=2)
    assert found is not None
    text = "30 batches that could be sent, and 2 threads waiting for memory"
    assert (found.bound, found.text) == (Bound.SENDER, text)


def test_a_broker_that_answers_late(slab_name: str, capsys: Capture) -> None:
    with FakeBroker() as fake:
        fake.answers[PRODUCE] = lambda _: produced((0, 0))
        settings = {
            "bootstrap.servers": fake.servers,
            "shmaccum.name": slab_name,
            "batch.max.bytes": 1,
            "sender.idle.ms": 50,
        }
        with Producer(settings) as producer:
            producer.send("t", b"first", partition=0).get(30)
            fake.pause()
            for _ in range(150):
                producer.send("t", bytes(1000), partition=0)
            try:
                wait_until(lambda: (found := report(slab_name).bottleneck) and found.bound is Bound.IN_FLIGHT)
                assert main(["status", slab_name]) == 0
                assert "bound     by in flight: 1 of 1 waiting partition" in capsys.readouterr().out
                assert main(["status", slab_name, "--json"]) == 0
                (slab,) = json.loads(capsys.readouterr().out)["slabs"]
                assert slab["bottleneck"]["bound"] == "in_flight"
                (finding,) = [each for each in slab_findings() if each.text.startswith(f"{slab_name}:")]
                assert (finding.level, finding.text.split(":")[1]) == (Level.OK, " bound by in flight")
            finally:
                fake.resume()
            producer.flush()
    wait_until_gone(slab_name)
