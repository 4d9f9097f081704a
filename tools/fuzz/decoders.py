"""The targets ``records``, ``log`` and ``settings``: bytes for decoders, and how bytes are mutated.

A decoder can raise the errors that it declares, and nothing else, within limits of time and memory.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import mmap
import random
import shutil
import struct
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final

from crc32c import crc32c

from shmaccum.cli.main import main
from shmaccum.config import ProducerConfig
from shmaccum.config.jaas import parse_jaas
from shmaccum.config.settingsfile import read_settings
from shmaccum.errors import ConfigError, CorruptRecordError, IllegalStateError
from shmaccum.record import legacy, v2
from shmaccum.record.compression import CompressionType, compress, decompress
from shmaccum.record.fields import LOG_OVERHEAD, MAGIC_OFFSET, BatchFields
from shmaccum.record.format import iter_batches, read_records, record_format
from shmaccum.sender.log.segments import recover
from tools.fuzz.child import Attempt, Target, try_in_child

_NOW: Final = 1_700_000_000_000
_MAX_SECTION: Final = 1 << 24
_LARGEST: Final = 1 << 16
"""Most bytes of an input."""
_NUMBERS: Final = (0, 1, 2, 7, 16, 61, 127, 128, 255, 256, 32767, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_VARINTS: Final = (
    b"\0",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\xff" * 4 + b"\x0f",
    b"\xfe" + b"\xff" * 3 + b"\x0f",
    b"\xff" * 9 + b"\x01",
)


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return bytes changed in a few places; a part can come from one of the others."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 8))):
        _change(rng, changed, others)
    return bytes(changed[:_LARGEST])


def _change(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    # What is in front decides how the rest is read.
    size = len(data)
    at = min(rng.randrange(size + 1), rng.randrange(size + 1)) if rng.random() < 0.5 else rng.randrange(size + 1)
    match rng.randrange(9):
        case 0 if at < size:
            data[at] ^= 1 << rng.randrange(8)
        case 1 if at < size:
            data[at] = rng.getrandbits(8)
        case 2:
            form = rng.choice((">h", ">i", ">q"))
            number = struct.pack(">q", rng.choice(_NUMBERS) * rng.choice((1, -1)))[-struct.calcsize(form) :]
            data[at : at + len(number)] = number
        case 3:
            data[at : at + rng.choice((0, 1))] = rng.choice(_VARINTS)
        case 4:
            del data[at : at + rng.choice((1, 1, 2, 4, 8, 64))]
        case 5:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))
        case 6:
            part = data[at : at + rng.randrange(1, 64)]
            data[at:at] = part * rng.choice((1, 1, 2, 50))
        case 7:
            del data[at:]
        case 8 if others:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            data[at : at + rng.choice((0, 16, size))] = other[start : start + rng.randrange(1, 400)]
        case _:
            data += rng.randbytes(4)


class BytesTarget(Target):
    """A target whose inputs are mutations of seeds, which are valid."""

    suffix: ClassVar[str] = ".bin"
    in_a_row: ClassVar[int] = 300
    """Inputs that one child tries, too: far less than a time limit's worth."""

    def __init__(self, seeds: Sequence[bytes]) -> None:
        self.seeds = seeds

    def make(self, rng: random.Random) -> bytes:
        return mutate(rng, rng.choice(self.seeds), self.seeds)

    def try_all(self, inputs: Sequence[bytes]) -> Iterator[Attempt]:
        """Try inputs, many in one child; after a failure, start another child."""
        begin = 0
        while begin < len(inputs):
            outcome, wrong, last = self._try_from(inputs, begin)
            if wrong:
                yield from (Attempt(each, "tried") for each in inputs[begin:last])
                yield Attempt(inputs[last], outcome, wrong)
            else:
                yield from map(Attempt, inputs[begin : last + 1], outcome.split("\n"))
            begin = last + 1

    def _try_from(self, inputs: Sequence[bytes], begin: int) -> tuple[str, str, int]:
        """Try inputs in a child; return the result, and which one was the last."""
        with mmap.mmap(-1, mmap.PAGESIZE) as shared, memoryview(shared).cast("q") as at:

            def decode_all() -> str:
                outcomes = []
                for number in range(begin, min(begin + self.in_a_row, len(inputs))):
                    at[0] = number
                    outcomes.append(self.decode(inputs[number]))
                return "\n".join(outcomes)

            return *try_in_child(decode_all), at[0]

    @abstractmethod
    def decode(self, data: bytes) -> str:
        """Decode an input; return the result in a word. Undeclared errors are raised."""


class RecordsTarget(BytesTarget):
    """Logs of all formats, and batches as they lie in slots."""

    def __init__(self) -> None:
        logs = [_log(magic, compression) for magic, compression in _combinations()]
        slots = [_log(magic, CompressionType.NONE, 0, batches=1) for magic in (1, 2)]
        mixed = (_log(magic, compression, 6 * number) for number, (magic, compression) in enumerate(_combinations()))
        super().__init__([*logs, *slots, b"".join(mixed)])

    def make(self, rng: random.Random) -> bytes:
        """Return a log, mostly with valid sizes and checksums, so that the decoder reads on."""
        if rng.random() < 0.2:
            return super().make(rng)
        log = rng.choice(self.seeds)
        for _ in range(rng.choice((1, 1, 2))):
            with contextlib.suppress(CorruptRecordError):
                log = _with_changed_entry(rng, log, self.seeds)
        return log

    def decode(self, data: bytes) -> str:
        outcomes = {_read_log(data)}
        for magic in (1, 2):
            outcomes.add(_read_slot(data, magic))
        return " ".join(sorted(outcomes))


def _read_log(data: bytes) -> str:
    try:
        for batch in iter_batches(data, check_crc=False):
            batch.is_valid()
            with contextlib.suppress(CorruptRecordError):
                assert batch.compression in CompressionType
            for _ in batch.records():
                pass
            assert batch.base_offset is not None
            assert batch.record_count >= 0
    except CorruptRecordError:
        return "corrupt"
    return "read"


def _read_slot(data: bytes, magic: int) -> str:
    """Read the bytes as an unsealed batch, as batch splitting does."""
    fmt = record_format(magic)
    if magic == 2:  # the first batch
        (size,) = struct.unpack(">8xi", data[:LOG_OVERHEAD].ljust(LOG_OVERHEAD, b"\0"))
        data = data[: LOG_OVERHEAD + max(size, 0)].ljust(v2.HEADER_SIZE + 1, b"\0")
    try:
        read_records(fmt, memoryview(bytearray(data)), BatchFields(3, _NOW, _NOW))
        fmt.set_base_offset(memoryview(bytearray(data)), 3, 100)
    except (CorruptRecordError, IllegalStateError):
        return f"no v{magic} slot"
    return f"v{magic} slot"


class LogTarget(RecordsTarget):
    """Directories of a partition, of two segments: recovered as a sender does it, then printed by ``shmaccum dump``."""

    in_a_row = 30

    def decode(self, data: bytes) -> str:
        """Recover a log of which this is the last segment, and read it again: what is left is whole."""
        directory = self.directory / "orders-0"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / f"{0:020}.log").write_bytes(self.seeds[-1])
        segment = directory / f"{500:020}.log"
        segment.write_bytes(data)
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.redirect_stderr(io.StringIO()):
            main(["dump", str(self.directory)])
            end = recover(directory, idempotent=True)
            again = recover(directory, idempotent=True)
            status = main(["dump", str(self.directory), "--json"])
        assert segment.stat().st_size == end.size
        assert (end.base_offset, end.size, end.next_offset) == (again.base_offset, again.size, again.next_offset)
        return f"dump {status}"


class SettingsTarget(BytesTarget):
    """Files of settings, and the credentials within them."""

    def __init__(self) -> None:
        jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\\"c";'
        settings = {
            "bootstrap.servers": "one:9092,[::1]:9093",
            "batch.size": 1024,
            "shmaccum.slot.size": 1024,
            "linger.ms": "5",
            "compression.type": "lz4",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
            "message.format.version": "0.11.0-IV2",
            "acks": "all",
            "delivery.timeout.ms": 120000,
            "enable.idempotence": True,
            "max.request.size": "1048576",
        }
        properties = "# settings\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())
        properties = properties.replace("\\", "\\\\")
        super().__init__([json.dumps(settings).encode(), properties.encode(), jaas.encode()])

    def decode(self, data: bytes) -> str:
        """Read a file of settings and make a configuration of them; read the same text as credentials."""
        path = self.directory / "settings"
        path.write_bytes(data)
        with contextlib.suppress(ValueError):
            parse_jaas(data.decode("latin-1"))
        try:
            ProducerConfig.parse(read_settings(str(path)))
        except ConfigError:
            return "refused"
        return "read"


# --- valid inputs ---------------------------------------------------------------------------------------


def _combinations() -> Iterable[tuple[int, CompressionType]]:
    for magic, compression in itertools.product((1, 2), CompressionType):
        if magic == 2 or compression is not CompressionType.ZSTD:
            yield magic, compression


def _log(magic: int, compression: CompressionType, base_offset: int = 500, batches: int = 2) -> bytes:
    """Return a log of some batches of three records."""
    fmt = record_format(magic)
    parts = []
    for number in range(batches):
        headers = [("name", b"value"), ("empty", None)] if magic == 2 else []
        bodies = [fmt.encode_body(key, b"value %d" % number, headers) for key in (b"key", None, b"k" * 70)]
        batch = bytearray(fmt.header_size)
        for index, body in enumerate(bodies):
            batch += fmt.encode_record(index, _NOW + index, _NOW, body)
        producer = (7, 0, 3 * number) if magic == 2 else ()
        sealed = fmt.seal(memoryview(batch), BatchFields(len(bodies), _NOW, _NOW + 2, *producer), compression)
        fmt.set_base_offset(sealed, len(bodies), base_offset + 3 * number)
        parts.append(bytes(sealed))
    return b"".join(parts)


# --- nearly valid inputs --------------------------------------------------------------------------------


def _with_changed_entry(rng: random.Random, log: bytes, others: Sequence[bytes]) -> bytes:
    """Change one entry of a log after its size, then correct size and checksum."""
    view = memoryview(log)
    spans = [(batch.position, batch.position + batch.size) for batch in iter_batches(log)]
    start, end = rng.choice(spans)
    if log[start + MAGIC_OFFSET] == 2 and rng.random() < 0.5:
        body = log[start + LOG_OVERHEAD : start + v2.HEADER_SIZE] + _changed_section(rng, view[start:end], others)
    else:
        body = mutate(rng, log[start + LOG_OVERHEAD : end], others)
    entry = bytearray(log[start : start + 8] + struct.pack(">i", len(body)) + body)
    if len(entry) > v2.HEADER_SIZE and entry[MAGIC_OFFSET] == 2:
        crc = crc32c(memoryview(entry)[v2.CRC_START :])
        entry[v2.CRC_START - 4 : v2.CRC_START] = struct.pack(">I", crc)
    elif len(entry) > MAGIC_OFFSET:
        crc = zlib.crc32(memoryview(entry)[MAGIC_OFFSET:])
        entry[legacy.CRC_OFFSET : MAGIC_OFFSET] = struct.pack(">I", crc)
    return log[:start] + entry + log[end:]


def _changed_section(rng: random.Random, batch: memoryview, others: Sequence[bytes]) -> bytes:
    """Return the records of a batch of format 2, changed, and compressed as they were."""
    compression = CompressionType.for_attributes(batch[v2.CRC_START + 1])
    section = decompress(compression, batch[v2.HEADER_SIZE :], 2, _MAX_SECTION)
    return compress(compression, mutate(rng, section, others), 2)
