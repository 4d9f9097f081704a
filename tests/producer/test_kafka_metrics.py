"""The metrics of Kafka's producer: each that the documentation says is here, and numbers that can be computed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_broker import FakeBroker, Request, produced
from fixture_types import Produce
from processes import wait_until

from shmaccum import Producer
from shmaccum.errors import InvalidTopicError, NotEnoughReplicasError, PolicyViolationError, RecordTooLargeError
from tools.support.messages import PRODUCE

PAGE = Path(__file__).parents[2] / "docs" / "monitoring" / "kafka-metrics.md"
KAFKAS: dict[str, str] = {
    "producer-metrics": """
        batch-size-avg batch-size-max batch-split-rate batch-split-total buffer-available-bytes buffer-exhausted-rate
        buffer-exhausted-total buffer-total-bytes bufferpool-wait-ratio bufferpool-wait-time-ns-total
        compression-rate-avg connection-close-rate connection-close-total connection-count connection-creation-rate
        connection-creation-total failed-authentication-rate failed-authentication-total failed-reauthentication-rate
        failed-reauthentication-total flush-time-ns-total incoming-byte-rate incoming-byte-total io-ratio
        io-time-ns-avg io-time-ns-total io-wait-ratio io-wait-time-ns-avg io-wait-time-ns-total metadata-age
        metadata-wait-time-ns-total network-io-rate network-io-total outgoing-byte-rate outgoing-byte-total
        produce-throttle-time-avg produce-throttle-time-max reauthentication-latency-avg reauthentication-latency-max
        record-error-rate record-error-total record-queue-time-avg record-queue-time-max record-retry-rate
        record-retry-total record-send-rate record-send-total record-size-avg record-size-max records-per-request-avg
        request-latency-avg request-latency-max request-rate request-size-avg request-size-max request-total
        requests-in-flight response-rate response-total select-rate select-total
        successful-authentication-no-reauth-total successful-authentication-rate successful-authentication-total
        successful-reauthentication-rate successful-reauthentication-total txn-abort-time-ns-total
        txn-begin-time-ns-total txn-commit-time-ns-total txn-init-time-ns-total txn-prepare-time-ns-total
        txn-send-offsets-time-ns-total waiting-threads
    """,
    "producer-topic-metrics": """
        byte-rate byte-total compression-rate record-error-rate record-error-total record-retry-rate
        record-retry-total record-send-rate record-send-total
    """,
    "producer-node-metrics": """
        incoming-byte-rate incoming-byte-total outgoing-byte-rate outgoing-byte-total request-latency-avg
        request-latency-max request-rate request-size-avg request-size-max request-total response-rate response-total
    """,
}
"""Those of kafka-clients 4.3.1, as its own ``metrics()`` has them; two more groups have four."""
HEADER_SIZE = 61


def documented() -> dict[str, dict[str, bool]]:
    """Return, for each group of the page, whether it says that a metric is here."""
    found: dict[str, dict[str, bool]] = {}
    group = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
        elif line.startswith("| `"):
            names, scope = line.split(" | ")[:2]
            found.setdefault(group, {}).update(dict.fromkeys(re.findall("`([a-z-]+)`", names), scope != "—"))
    return found


def test_metrics_are_those_that_the_page_says(connect: Produce) -> None:
    """The page has all of Kafka's, and says which are here."""
    producer = connect()
    producer.send("t", b"value", partition=0).get(20)
    metrics = producer.metrics()
    for group, names in KAFKAS.items():
        on_page = documented()[group]
        assert sorted(on_page) == sorted(names.split())
        (found,) = [metrics[name] for name in (group, f"{group}.t", f"{group}.node-1") if name in metrics]
        assert {name for name in on_page if name in found} == {name for name, is_here in on_page.items() if is_here}
    assert metrics["kafka-metrics-count"]["count"] == sum(map(len, metrics.values()))
    assert all(isinstance(value, int | float) for group in metrics.values() for value in group.values())


def test_metrics_of_known_batches(fake: FakeBroker, connect: Produce) -> None:
    """Four batches in four requests: one is refused once and sent again, one is refused for good."""
    codes = [NotEnoughReplicasError.code, 0, 0, PolicyViolationError.code]

    def answer(request: Request) -> object:
        code = codes.pop(0)
        return produced(*((each.index, code) for each in batches_of(request)))

    fake.answers[PRODUCE] = answer
    producer = connect(linger_ms=60_000)
    for records, partition in ((3, 0), (5, 1), (2, 0)):
        for _ in range(records):
            producer.send("t", bytes(100), partition=partition)
        producer.flush(20)
    requests = fake.of(PRODUCE)
    sizes = [len(each.records) for request in requests for each in batches_of(request)]
    wait_until(lambda: has_counted(producer, fake), "all requests are counted")

    metrics = producer.metrics()
    found, topic, slab = metrics["producer-metrics"], metrics["producer-topic-metrics.t"], metrics["slab-metrics"]
    sent = 3 + 3 + 5 + 2
    assert len(sizes) == len(requests) == 4
    assert found["record-send-total"] == topic["record-send-total"] == sent
    assert found["record-retry-total"] == topic["record-retry-total"] == 3
    assert found["record-error-total"] == topic["record-error-total"] == 2
    assert slab["record-send-total"] == 3 + 5  # acknowledged
    assert found["records-per-request-avg"] == sent / 4
    assert (found["batch-size-avg"], found["batch-size-max"]) == (sum(sizes) / 4, max(sizes))
    assert topic["byte-total"] == sum(sizes)
    assert found["compression-rate-avg"] == topic["compression-rate"] == 1
    assert found["record-size-avg"] * 10 == sum(sizes) - sizes[0] - 3 * HEADER_SIZE  # one batch went out twice

    frames = [len(request.frame) for request in fake.requests]
    assert found["outgoing-byte-total"] == sum(frames)
    assert found["request-size-avg"] == sum(frames) / len(frames)
    assert found["request-size-max"] == max(frames)
    assert found["network-io-total"] == 2 * len(frames)
    assert found["incoming-byte-total"] > len(frames) * 8  # a size and a correlation id are in each
    assert found["connection-creation-total"] == len(fake.connections)
    assert found["connection-count"] == found["connection-creation-total"] - found["connection-close-total"] > 0
    assert found["successful-authentication-total"] == found["failed-authentication-total"] == 0
    assert 0 < found["metadata-age"] < 600
    assert found["record-send-rate"] > found["record-error-rate"] > 0


def has_counted(producer: Producer, fake: FakeBroker) -> bool:
    found = producer.metrics()["producer-metrics"]
    return found["request-total"] == found["response-total"] == len(fake.requests)


def test_compression_rate_of_a_known_batch(fake: FakeBroker, connect: Produce) -> None:
    producer = connect(compression_type="gzip", linger_ms=60_000)
    for _ in range(10):
        producer.send("t", bytes(1000), partition=0)
    producer.flush(20)
    ((batch,),) = [batches_of(request) for request in fake.of(PRODUCE)]
    found = producer.metrics()["producer-metrics"]
    uncompressed = found["byte-append-total"]
    assert found["batch-size-max"] == len(batch.records)
    assert found["compression-rate-avg"] == int((len(batch.records) - HEADER_SIZE) * 1000 // uncompressed) / 1000
    assert 0 < found["compression-rate-avg"] < 0.1


def test_calls_of_send_that_fail_are_errors_of_records(fake: FakeBroker, connect: Produce) -> None:
    """As in Kafka (``KafkaProducer.doSend``), in the group of all topics only."""
    fake.answers[PRODUCE] = lambda request: produced((0, PolicyViolationError.code))
    producer = connect(max_request_size=1500)
    assert producer.send("t", b"value", partition=0).exception(20)
    for topic in ("t", "t", "not a topic's name"):
        with pytest.raises((RecordTooLargeError, InvalidTopicError)):
            producer.send(topic, bytes(2000), partition=0)
    with pytest.raises(RecordTooLargeError):
        producer.send_batch("t", pa.record_batch({"value": [bytes(2000), b"value"]}))
    metrics = producer.metrics()
    assert metrics["producer-metrics"]["record-error-total"] == 1 + 4
    assert metrics["producer-metrics"]["record-error-rate"] > 0
    assert metrics["producer-topic-metrics.t"]["record-error-total"] == 1
    assert metrics["slab-metrics"]["record-error-total"] == 1


def test_a_second_producer_has_no_rate_of_what_was_sent_before_it(fake: FakeBroker, connect: Produce) -> None:
    first = connect()
    first.send("t", b"value", partition=0).get(20)
    wait_until(lambda: has_counted(first, fake), "all requests are counted")
    metrics = connect().metrics()["producer-metrics"]
    assert metrics["record-send-total"] == 1
    assert metrics["record-send-rate"] == 0


def batches_of(request: Request) -> list[Any]:
    """Return the batches in a Produce request."""
    return [each for topic in request.asked.topic_data for each in topic.partition_data]
