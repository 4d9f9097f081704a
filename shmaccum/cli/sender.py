"""``shmaccum sender``: runs the sender of a slab in the foreground, for systemd and containers.

It shares the slab of every producer with the same settings; ``sender.idle.ms`` can differ. It logs to standard error.
On the first SIGTERM or SIGINT it delivers all records and exits with status 0; on a second one it exits at once.
"""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from shmaccum.cli.settings_arguments import SETTINGS_HELP, add_settings, address, given_settings
from shmaccum.config import ProducerConfig
from shmaccum.sender.logfile import LOG_FORMAT, SELDOM, begin_log
from shmaccum.sender.process import serve
from shmaccum.shm.slab import Slab

if TYPE_CHECKING:
    from shmaccum.monitoring.http_server import MetricsServer

logger = logging.getLogger(__name__)

_EPILOG: Final = f"""\
{SETTINGS_HELP}

The sender stays until a signal ends it, unless sender.idle.ms is set. If another sender serves the slab, it waits: a
sender that a producer started hands its role over, another `shmaccum sender` keeps it until it exits.
Exit status: 0 after SIGTERM, SIGINT or SIGHUP once all is delivered, 1 if it cannot serve, 2 for wrong settings.

examples:
  shmaccum sender --config /etc/shmaccum.properties
  shmaccum sender -X bootstrap.servers=broker1:9092,broker2:9092
  shmaccum sender --config orders.properties --metrics-listen 127.0.0.1:9975
  shmaccum sender -X transport=log -X log.dir=/var/lib/shmaccum -X num.partitions=8
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    add_settings(parser)
    parser.add_argument(
        "--metrics-listen",
        metavar="HOST:PORT",
        type=address,
        help="serve this slab's metrics there, as `shmaccum exporter` does for all slabs",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until stopped.

    Raises:
        ConfigError: a setting is wrong, or nothing can listen for metrics there.
        ShmaccumError: it cannot serve.
        OSError: its log file cannot be written.
    """
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    for handler in logging.getLogger().handlers:
        handler.addFilter(SELDOM)
    config = ProducerConfig.parse(given_settings(args, {"sender.idle.ms": -1}))
    log = "standard error"
    if config.sender_log_file:
        log += f", {begin_log(config)}"
    with ExitStack() as cleanup:
        if args.metrics_listen is not None:
            cleanup.callback(_serve_metrics(args.metrics_listen, config.slab_name(os.geteuid())).close)
        serve(config, _log_serving, log, supervised=True)
    logger.info("has left")
    return 0


def _serve_metrics(place: tuple[str, int], slab: str) -> MetricsServer:
    """Serve the metrics of a slab in a thread."""
    # Imported here: without the option, a sender needs no prometheus_client.
    from shmaccum.monitoring.collector import SlabCollector
    from shmaccum.monitoring.http_server import MetricsServer

    server = MetricsServer(*place, SlabCollector([slab]))
    server.start()
    logger.info("metrics at %s", server.url)
    return server


def _log_serving(slab: Slab) -> None:
    logger.info("serving slab %s as process %d", slab.name, os.getpid())
