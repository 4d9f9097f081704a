"""A broker's segment files as Kafka's own tool for dumping them sees them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.kafka.errors import KafkaToolError
from tools.kafka.jvm import java_command

_BATCH: Final = re.compile(r"^baseOffset: ", re.MULTILINE)
_FIELD: Final = re.compile(r"(\w+): (\S+)")


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A record batch, by the names of KIP-98 and KIP-101; numbers are -1 where the batch has none."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    size: int
    """Bytes, with offset and length."""
    magic: int
    compression: str
    crc: int
    valid: bool
    """Whether the checksum is right."""


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
    return list(_batches(dump_text(*files)))


def _batches(text: str) -> Iterator[DumpedBatch]:
    for start in _BATCH.finditer(text):
        fields = dict(_FIELD.findall(text, start.start(), text.index("\n", start.start())))
        yield DumpedBatch(
            base_offset=int(fields["baseOffset"]),
            last_offset=int(fields["lastOffset"]),
            count=int(fields["count"]),
            base_sequence=int(fields["baseSequence"]),
            last_sequence=int(fields["lastSequence"]),
            producer_id=int(fields["producerId"]),
            producer_epoch=int(fields["producerEpoch"]),
            leader_epoch=int(fields["partitionLeaderEpoch"]),
            size=int(fields["size"]),
            magic=int(fields["magic"]),
            compression=fields["compresscodec"],
            crc=int(fields["crc"]),
            valid=fields["isvalid"] == "true",
        )
