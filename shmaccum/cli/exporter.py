"""``shmaccum exporter``: shows the metrics of all slabs of this host to Prometheus or OpenTelemetry.

It serves them by HTTP, writes them into a file for node_exporter's textfile collector, or pushes them by OTLP.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from shmaccum.cli.settings_arguments import address, seconds
from shmaccum.errors import ConfigError
from shmaccum.shm.names import check_name

_DEFAULT: Final = ("127.0.0.1", 9975)
_READABLE: Final = 0o644

_EPILOG: Final = """\
Reading takes no lock and stops no process. Slabs that cannot be read, such as those of other users, are left out and
counted; root reads all. There is no authentication: who can connect can read names of slabs and topics, and numbers.
SIGTERM ends it with status 0. docs/monitoring/README.md describes the metrics, and has a dashboard and alert rules.

examples:
  shmaccum exporter
  shmaccum exporter --listen 0.0.0.0:9975 --partitions
  shmaccum exporter --textfile /var/lib/prometheus/node-exporter/shmaccum.prom --every 15
  OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 shmaccum exporter --otlp
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("slabs", metavar="NAME", nargs="*", help="only these slabs, with their shards")
    places = parser.add_mutually_exclusive_group()
    places.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=address,
        default=_DEFAULT,
        help="serve http://HOST:PORT/metrics; 127.0.0.1:9975 by default, port 0 takes a free one",
    )
    places.add_argument("--textfile", metavar="FILE", type=Path, help="write FILE for node_exporter, and exit")
    places.add_argument(
        "--otlp", action="store_true", help="push by OTLP, as the environment's OTEL_* say, every minute by default"
    )
    parser.add_argument(
        "--every", metavar="SECONDS", type=seconds, help="with --textfile: write it every SECONDS until a signal"
    )
    parser.add_argument(
        "--partitions", action="store_true", help="a series for each partition of a topic, not for each topic"
    )


def run(args: argparse.Namespace) -> int:
    """Serve, write or push the metrics."""
    if args.every is not None and args.textfile is None:
        raise ConfigError("--every needs --textfile; with --otlp, set OTEL_METRIC_EXPORT_INTERVAL (milliseconds)")
    slabs = [check_name(name) for name in args.slabs] or None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if args.otlp:
        _push(slabs, partitions=args.partitions)
    from shmaccum.observe.http_server import MetricsServer
    from shmaccum.observe.prometheus import SlabCollector, exposition

    collector = SlabCollector(slabs, partitions=args.partitions)
    if args.textfile is None:
        server = MetricsServer(args.listen[0], args.listen[1], collector)
        print(f"metrics at {server.url}", flush=True)
        try:
            server.serve_forever()
        finally:
            server.close()
    if args.every is None:
        _write(args.textfile, exposition(collector).content)
        return 0
    while True:
        try:
            _write(args.textfile, exposition(collector).content)
        except OSError as error:  # the folder can come back, and the disk get room
            print(f"shmaccum exporter: {error}; next attempt in {args.every:g} s", file=sys.stderr, flush=True)
        time.sleep(args.every)


def _push(slabs: Sequence[str] | None, *, partitions: bool) -> NoReturn:
    from shmaccum.opentelemetry.otlp import push_slabs

    provider = push_slabs(slabs, partitions=partitions)
    try:
        print("metrics are pushed by OTLP", flush=True)
        while True:
            signal.pause()
    finally:
        provider.shutdown()


def _write(file: Path, content: bytes) -> None:
    """Replace the file as a whole: its reader never sees half of it."""
    # Its name does not end with .prom, so that node_exporter does not read it.
    try:
        descriptor, made = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error  # not by its own name
    try:
        with open(descriptor, "wb") as output:
            output.write(content)
            os.fchmod(descriptor, _READABLE)
        os.replace(made, file)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(made)
        raise
