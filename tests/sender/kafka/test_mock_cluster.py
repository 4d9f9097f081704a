"""Whole producers against librdkafka's mock cluster: brokers with other opinions, without Java, there in no time."""

from __future__ import annotations

from collections import defaultdict

import pytest
from brokers import consume
from producers import settings_of, wait_until_gone

from shmaccum import Producer

COUNT = 2000


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"compression.type": "zstd"},
        {"enable.idempotence": False, "acks": "1"},
        {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())) or "defaults",
)
def test_what_is_sent_is_there_once_and_in_order(
    mock_servers: str, slab_name: str, topic: str, settings: dict[str, object]
) -> None:
    cluster = {"transport": "kafka", "log.dir": "", "bootstrap.servers": mock_servers}
    with Producer(settings_of(slab_name, "", batch_size=4096) | cluster | settings) as producer:
        futures = [producer.send(topic, f"{number}", key=f"key {number % 7}") for number in range(COUNT)]
        producer.flush(30)
        told = {(each.get().partition, each.get().offset): number for number, each in enumerate(futures)}
    found = consume({"bootstrap.servers": mock_servers}, topic)
    values: dict[bytes | None, list[int]] = defaultdict(list)
    for partition, records in found.items():
        for record in records:
            values[record.key()].append(int(record.value()))
            assert told.pop((partition, record.offset())) == int(record.value())
    assert not told
    assert values == {b"key %d" % key: list(range(key, COUNT, 7)) for key in range(7)}
    wait_until_gone(slab_name)
