"""The sink counts what comes, and answers so that everybody goes on."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceResponse

from tools.benchmark.brokers.sink import COUNTS, Counters, acknowledge, frames
from tools.benchmark.cases.limits import BATCHES_A_REQUEST, produce_request


@given(st.lists(st.binary(max_size=5000), max_size=10), st.integers(1, 3000))
def test_frames_however_they_come(payloads: list[bytes], piece: int) -> None:
    wire = b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = []
        reader = frames(theirs)
        ours.settimeout(5)
        sent = 0
        while len(found) < len(payloads):
            while sent < len(wire) and sent < sum(map(len, found)) + 4 * len(found) + 4 + len(payloads[len(found)]):
                sent += ours.send(wire[sent : sent + piece])
            found.append(bytes(next(reader)[4:]))
        assert found == payloads
        ours.close()
        with pytest.raises(EOFError):
            next(reader)


def test_a_frame_larger_than_the_buffer() -> None:
    import threading

    payload = bytes(range(256)) * (3 << 12)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = struct.pack(">i", len(payload)) + payload
        writer = threading.Thread(target=ours.sendall, args=(wire,))
        writer.start()
        assert bytes(next(frames(theirs))) == wire
        writer.join()


@pytest.mark.parametrize("version", [3, 5, 7, 8])
def test_produce(version: int) -> None:
    counters = Counters()
    request = bytearray(produce_request("topic"))
    answer = acknowledge(memoryview(request), version, 77, counters.new_row())
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
        row = counters.new_row()
        assert list(row) == [0] * len(COUNTS)
        row[COUNTS.index("records")] = 2
    assert counters.totals()["records"] == 6000
