"""Produce requests: reads and counts what the sink needs, and answers that everything is stored at offset 0.

It reads a request a little ahead, as far as fields and batch headers can reach. The kernel drops the records after a
header (``MSG_TRUNC``), so a large batch costs no copy, and small batches share system calls.
"""

from __future__ import annotations

import mmap
import socket
import struct
from typing import Final

VERSIONS: Final = (7, 12)

_FIRST_FLEXIBLE: Final = 9
_AHEAD: Final = 2048
_DROPPED_AT_ONCE: Final = 1 << 16
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_STORED: Final = struct.Struct(">ihqqq")
"""Partition, no error, base offset, append time, where the log starts."""
_RECORD_COUNT_AT: Final = 57
_BATCH_HEAD: Final = _RECORD_COUNT_AT + _INT32.size


COUNTS: Final = ("open", "producing", "requests", "batches", "records", "bytes")
"""What is counted of a connection: whether it is open, and carried a batch; Produce requests; batches, their records
and bytes."""
OPEN, PRODUCING, REQUESTS, BATCHES, RECORDS, BYTES = range(len(COUNTS))

_ROWS: Final = 1 << 16
"""Connections that a sink can serve; only the memory of those that there were is used."""


class Counters:
    """The counts of all connections, in memory that all processes share: a row each, which one writes."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, _ROWS * len(COUNTS) * 8)).cast("Q")
        self._end = 0

    def new_row(self) -> memoryview:
        if self._end == len(self._words):
            raise RuntimeError(f"this sink has served {_ROWS:,} connections, the most it can: start another one")
        start, self._end = self._end, self._end + len(COUNTS)
        return self._words[start : self._end]

    def totals(self) -> dict[str, int]:
        return {name: sum(self._words[place : self._end : len(COUNTS)]) for place, name in enumerate(COUNTS)}


class Stream:
    """A client's requests, field by field, without the bytes that the sink skips."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray(_AHEAD)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._scratch = bytearray(_DROPPED_AT_ONCE)

    def take(self, size: int) -> bytes:
        """Return the next bytes, or raise EOFError if the client has gone."""
        if size > self._end - self._start:
            self._read_ahead(size)
        self._start += size
        return bytes(self._view[self._start - size : self._start])

    def number(self, form: struct.Struct) -> int:
        """Return a number of fixed size."""
        number: int = form.unpack(self.take(form.size))[0]
        return number

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def drop(self, size: int) -> None:
        """Let bytes go by, or raise EOFError if the client has gone."""
        at_hand = min(size, self._end - self._start)
        self._start += at_hand
        size -= at_hand
        while size:
            dropped = self._connection.recv_into(self._scratch, min(size, len(self._scratch)), socket.MSG_TRUNC)
            if not dropped:
                raise EOFError
            size -= dropped

    def _read_ahead(self, size: int) -> None:
        """Read until the buffer has at least ``size`` bytes."""
        left = bytes(self._view[self._start : self._end])
        if size > len(self._buffer):
            self._buffer = bytearray(size)
            self._view = memoryview(self._buffer)
        self._view[: len(left)] = left
        self._start, self._end = 0, len(left)
        while self._end < size:
            got = self._connection.recv_into(self._view[self._end :])
            if not got:
                raise EOFError
            self._end += got


def acknowledge(stream: Stream, version: int, correlation_id: int, counts: memoryview) -> bytes:
    """Read a Produce request from behind its correlation id, count what is in it, and return the answer."""
    flexible = version >= _FIRST_FLEXIBLE
    stream.drop(max(0, stream.number(_INT16)))  # client id
    if flexible:
        stream.drop(1)  # tags
        stream.drop(max(0, stream.varint() - 1))  # transactional id
    else:
        stream.drop(max(0, stream.number(_INT16)))
    stream.take(_ACKS_AND_TIMEOUT.size)
    rest = _rest_of_partition(version)
    end = b"\0" if flexible else b""

    def length() -> int:
        return stream.varint() - 1 if flexible else stream.number(_INT32)

    def array(size: int) -> bytes:
        return _varint(size + 1) if flexible else _INT32.pack(size)

    batches = records = sent = 0
    topics = length()
    answer = bytearray(_INT32.pack(correlation_id) + end + array(topics))
    for _ in range(topics):
        size = stream.varint() - 1 if flexible else stream.number(_INT16)
        name = stream.take(size)
        partitions = length()
        answer += (_varint(size + 1) if flexible else _INT16.pack(size)) + name + array(partitions)
        for _ in range(partitions):
            number = stream.number(_INT32)
            size = length()
            records += _INT32.unpack_from(stream.take(_BATCH_HEAD), _RECORD_COUNT_AT)[0]
            stream.drop(size - _BATCH_HEAD + len(end))
            batches += 1
            sent += size
            answer += _STORED.pack(number, 0, 0, -1, 0) + rest
        stream.drop(len(end))
        answer += end
    stream.drop(len(end))
    answer += _INT32.pack(0) + end
    counts[PRODUCING] = 1
    counts[REQUESTS] += 1
    counts[BATCHES] += batches
    counts[RECORDS] += records
    counts[BYTES] += sent
    return _INT32.pack(len(answer)) + answer


def _rest_of_partition(version: int) -> bytes:
    """Return what ends a partition's answer: no errors of single records, no message, no tags."""
    if version >= _FIRST_FLEXIBLE:
        return b"\1\0\0"
    return b"\0\0\0\0\xff\xff" if version == 8 else b""


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
