"""The sink counts what comes, and answers so that everybody goes on."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceResponse
from wires import MakeWire

from shmaccum._core import ProduceBatch
from shmaccum.cluster import TopicPartition
from tools.benchmark.cases.limits import BATCHES_A_REQUEST, produce_request
from tools.sink import running_sink
from tools.sink.produce import COUNTS, Counters, Stream, acknowledge

_HEAD = 12
"""Bytes of a request up to its correlation id."""


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6000)), max_size=8), st.integers(11, 9000))
def test_a_stream_however_it_comes(steps: list[tuple[bool, int]], piece: int) -> None:
    size = sum(each for _, each in steps)
    wire = bytes(number * 7 % 251 for number in range(size))
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def write() -> None:
            for start in range(0, size, piece):
                ours.sendall(wire[start : start + piece])
            ours.shutdown(socket.SHUT_WR)

        writer = threading.Thread(target=write)
        writer.start()
        stream, at = Stream(theirs), 0
        for wanted, length in steps:
            if wanted:
                assert stream.take(length) == wire[at : at + length]
            else:
                stream.drop(length)
            at += length
        for beyond in (stream.take, stream.drop):
            with pytest.raises(EOFError):
                beyond(1)
        writer.join()


@pytest.mark.parametrize("version", [7, 8])
def test_produce(version: int) -> None:
    counters = Counters()
    request = produce_request("topic")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=ours.sendall, args=(request,))
        writer.start()
        stream = Stream(theirs)
        stream.take(_HEAD)
        answer = acknowledge(stream, version, 77, counters.new_row())
        writer.join()
    decoded = ProduceResponse[version].decode(answer, header=True, framed=True)
    (topic,) = decoded.responses
    assert topic.name == "topic"
    assert [(each.index, each.error_code) for each in topic.partition_responses] == [
        (number, 0) for number in range(BATCHES_A_REQUEST)
    ]
    totals = counters.totals()
    assert tuple(totals) == COUNTS
    assert (totals["requests"], totals["batches"], totals["records"]) == (1, BATCHES_A_REQUEST, BATCHES_A_REQUEST)
    assert 15_000 * BATCHES_A_REQUEST < totals["bytes"] < len(request)


def test_no_count_is_lost_over_many_connections() -> None:
    counters = Counters()
    for _ in range(3000):
        counters.new_row()[COUNTS.index("records")] = 2
    assert counters.totals()["records"] == 6000


@pytest.mark.parametrize("version", [7, 8, 9, 12])
def test_every_partition_is_acknowledged(version: int, wire: MakeWire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmaccum.kafka.handshake.NEWEST_PRODUCE", version)
    names = [f"topic-{number}" for number in range(3)]
    with running_sink(2) as servers:
        here = wire(servers, enable_idempotence=False)
        here.transport.request_update(names)
        batches = [
            ProduceBatch(TopicPartition(name, partition), (memoryview(bytearray(size)),), 1, 2, -1, -1, -1, 0, size)
            for name, sizes in zip(names, [(61, 200), (16_384, 100_000), (1_000_000, 62)], strict=True)
            for partition, size in enumerate(sizes)
        ]
        answers = []
        for _ in range(2):
            here.send(*batches)
            answers += here.take(len(batches))
    assert [answer.batch for answer in answers] == batches * 2
    assert {(answer.error, answer.base_offset) for answer in answers} == {(None, 0)}
