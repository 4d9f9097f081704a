r"""``shmaccum dump``: prints the records of a log directory, one record a line.

The readable form has columns separated by tabs: topic-partition, offset, timestamp, key, value, headers (as
``name:value``, separated by commas). Bytes are decoded as UTF-8. Backslashes, and bytes that are not UTF-8 or not
printable, are escaped with a backslash, so a line is always a record and a tab always ends a column. A null is
``null``, and so is that word; ``--json`` distinguishes them. There, a line is an object::

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": null, "value": "text", "headers": [["name", {"base64": "/w=="}]]}

Bytes are a string if they are valid UTF-8, else their base64 in an object. Times are milliseconds since the epoch; -1
if the message format has none.

Reading takes no lock: the output ends at a batch that a sender is still writing. It uses memory for one batch.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from shmaccum.cluster import TopicPartition
from shmaccum.errors import ConfigError, CorruptRecordError, KafkaStorageError, escaped
from shmaccum.record.fields import Record
from shmaccum.sender.log.directory import has_writer, is_log_directory, list_partitions
from shmaccum.sender.log.segments import SegmentReader, list_segments

_EPILOG = """\
A line is a record: topic-partition, offset, timestamp, key, value, headers, separated by tabs.

examples:
  shmaccum dump demo-out | head
  shmaccum dump demo-out --topic flights --partition 0 --json | wc -l
"""

_Formatter: TypeAlias = Callable[[TopicPartition, Record], str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("directory", metavar="DIR", type=Path, help="the log's directory (log.dir)")
    parser.add_argument("--topic", help="only this topic")
    parser.add_argument("--partition", type=int, help="only this partition")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Print the records to stdout and problems to stderr, up to what is corrupt or cannot be read."""
    try:
        partitions = list_partitions(args.directory)
    except OSError as error:
        raise ConfigError(f"{args.directory} is not a log directory: {error.strerror}") from error
    if not partitions and not is_log_directory(args.directory):
        raise ConfigError(f"{args.directory} is not a log directory: no sender has ever written there")
    if args.topic is not None:
        partitions = [each for each in partitions if each.topic == args.topic]
        if not partitions:
            raise ConfigError(f"{args.directory} has no topic {args.topic!r}")
    if args.partition is not None:
        partitions = [each for each in partitions if each.partition == args.partition]
        if not partitions:
            of_topic = "" if args.topic is None else f" of topic {args.topic!r}"
            raise ConfigError(f"{args.directory} has no partition {args.partition}{of_topic}")
    try:
        _print_partitions(args.directory, partitions, _as_json if args.json else _as_text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise KafkaStorageError(f"{error.filename or args.directory}: {error.strerror}") from error
    return 0


def _print_partitions(log_dir: Path, partitions: list[TopicPartition], formatted: _Formatter) -> None:
    out = sys.stdout.buffer  # the records' own UTF-8, whatever the locale
    try:
        for topic_partition in partitions:
            for record in _read_records(log_dir, topic_partition):
                out.write(formatted(topic_partition, record).encode() + b"\n")
    finally:
        out.flush()  # before any message to stderr, and while a broken pipe can still be caught


def _read_records(log_dir: Path, topic_partition: TopicPartition) -> Iterator[Record]:
    """Yield the records of a partition in the order of their offsets.

    Raises:
        CorruptRecordError: with file and position.
        OSError: a file cannot be read.
    """
    readers = [SegmentReader(segment, any_owner=True) for segment in list_segments(log_dir / str(topic_partition))]
    for reader in readers:
        for batch in reader.batches():
            try:
                yield from batch.records()
            except CorruptRecordError as error:
                raise reader.corrupt(str(error)) from error
        excess = reader.size - reader.end
        if excess and reader is not readers[-1]:
            raise CorruptRecordError(f"{reader.path} is corrupt at byte {reader.end}: the last batch is incomplete")
        if excess and not has_writer(log_dir):
            print(
                f"shmaccum dump: {reader.path}: the {excess} bytes from byte {reader.end} on are an incomplete batch; "
                f"the next sender removes them",
                file=sys.stderr,
            )


def _as_text(topic_partition: TopicPartition, record: Record) -> str:
    headers = ",".join(f"{_shown(name.encode())}:{_shown(value)}" for name, value in record.headers)
    key, value = _shown(record.key), _shown(record.value)
    return f"{topic_partition}\t{record.offset}\t{record.timestamp}\t{key}\t{value}\t{headers}"


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    return escaped(data.replace(b"\\", b"\\\\").decode(errors="backslashreplace"))


def _as_json(topic_partition: TopicPartition, record: Record) -> str:
    shown = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json_value(record.key),
        "value": _json_value(record.value),
        "headers": [[name, _json_value(value)] for name, value in record.headers],
    }
    return json.dumps(shown)


def _json_value(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
