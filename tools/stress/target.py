"""The destination of the records, where the check reads them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.stress.options import Options

_SEGMENT_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """A log, or a broker.

    Attributes:
        settings: of producers that send to it.
        log_dir: directory of the partitions' segment files: the log transport's, or the broker's own.
    """

    settings: Mapping[str, object]
    log_dir: Path


@contextmanager
def target(options: Options, directory: Path) -> Iterator[Target]:
    """Create the requested target; stop a broker at the end, and keep its files."""
    if options.transport == "log":
        log_dir = directory / "log"
        settings = {
            "transport": "log",
            "log.dir": str(log_dir),
            "num.partitions": options.partitions,
            "segment.bytes": _SEGMENT_BYTES,
        }
        yield Target(settings, log_dir)
        return
    from tools.kafka import KafkaCluster, ensure_kafka

    ensure_kafka()
    # Topics are created on first use, with this number of partitions.
    overrides = {"auto.create.topics.enable": "true", "num.partitions": options.partitions}
    with KafkaCluster(directory / "kafka", overrides=overrides) as cluster:
        yield Target({"transport": "kafka", "bootstrap.servers": cluster.bootstrap_servers}, cluster.nodes[1].data)
