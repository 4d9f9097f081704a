"""A broker's segment files as Kafka's own tool for dumping them sees them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.kafka.errors import KafkaToolError
from tools.kafka.jvm import java_command

_BATCH: Final = re.compile(r"^baseOffset: .*", re.MULTILINE)
_FIELD: Final = re.compile(r"(\w+): (\S+)")
_NUMBERS: Final = (  # in the order of the fields of `DumpedBatch`
    *("baseOffset", "lastOffset", "count", "baseSequence", "producerId", "producerEpoch", "size", "magic"),
)


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A record batch, by the names of KIP-98 and KIP-101; numbers are -1 where the batch has none.

    Attributes:
        valid: whether the checksum is right.
        size: bytes, with offset and length.
    """

    valid: bool
    compression: str
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    producer_id: int
    producer_epoch: int
    size: int
    magic: int


def segments(data: Path, topic: str, partition: int = 0) -> list[Path]:
    """Return the segment files of a partition in a broker's data directory (`Node.data`), oldest first."""
    return sorted((data / f"{topic}-{partition}").glob("*.log"))


def dump_text(*files: Path) -> str:
    """Return what Kafka's DumpLogSegments prints of segment files, records included."""
    names = ",".join(str(file) for file in files)
    command = java_command("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", names)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise KafkaToolError(f"the dump of {names} failed, status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def dump_batches(data: Path, topic: str, partition: int = 0) -> list[DumpedBatch]:
    """Return the batches of a partition in a broker's data directory (`Node.data`), in the order of the log."""
    files = segments(data, topic, partition)
    if not files:
        raise KafkaToolError(f"partition {topic}-{partition} has no segment in {data}")
    return [_batch(dict(_FIELD.findall(line))) for line in _BATCH.findall(dump_text(*files))]


def _batch(fields: dict[str, str]) -> DumpedBatch:
    numbers = (int(fields[name]) for name in _NUMBERS)
    return DumpedBatch(fields["isvalid"] == "true", fields["compresscodec"], *numbers)
