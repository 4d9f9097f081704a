"""The measurement of the sender runs and is complete; the sink acknowledges to whoever asks, in every form."""

from __future__ import annotations

import time

import pytest

from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.sender.kafka.transport import KafkaTransport
from shmaccum.sender.transport import ProduceBatch, ProduceResponse
from tools import bench_sender
from tools.sink import running_sink


def test_every_figure_of_sending_is_there() -> None:
    costs = bench_sender.sending_costs(3, 2, batches=30)
    assert [cost.partitions for cost in costs] == [3, 3]
    for cost in costs:
        assert 1 <= cost.batches_a_request <= 3
        assert cost.cpu_us_a_batch > 0
        assert cost.megabytes_a_core_second == pytest.approx(bench_sender.BATCH_SIZE / cost.cpu_us_a_batch)


@pytest.mark.parametrize("lingering", [False, True])
def test_every_figure_of_finding_is_there(lingering: bool) -> None:
    (cost,) = bench_sender.finding_costs(12, 1, lingering=lingering)
    assert (cost.partitions, cost.lingering) == (12, lingering)
    assert cost.cpu_us > 0


@pytest.mark.parametrize("version", [7, 8, 9, 12])
def test_the_sink_acknowledges_every_partition(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmaccum.sender.kafka.greeting.NEWEST_VERSION", version)
    names = [f"topic-{number}" for number in range(3)]
    with running_sink(2) as servers:
        settings = {"bootstrap.servers": servers, "shmaccum.name": "sink", "enable.idempotence": False}
        transport = KafkaTransport(ProducerConfig.parse(settings))
        transport.start()
        transport.request_update(names)
        first = TopicPartition(names[0], 0)
        while (node := transport.cluster().leader_for(first)) is None or not transport.ready(node, now_ms()):
            transport.poll(1000, -1)
        batches = [
            ProduceBatch(TopicPartition(name, partition), memoryview(bytearray(size)), 1, 2, -1, -1, -1, 0, size)
            for name, sizes in zip(names, [(61, 200), (16_384, 100_000), (1_000_000, 62)], strict=True)
            for partition, size in enumerate(sizes)
        ]
        answers: list[ProduceResponse] = []
        for sent in (1, 2):
            transport.send(node, batches, now_ms())
            while len(answers) < sent * len(batches):
                answers += transport.poll(1000, -1)
        transport.close()
    assert [answer.batch for answer in answers] == batches * 2
    assert {(answer.error, answer.base_offset) for answer in answers} == {(None, 0)}


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
