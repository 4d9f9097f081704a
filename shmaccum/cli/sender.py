"""``shmaccum sender``: runs the sender of a slab in the foreground, for systemd and containers.

It shares the slab of every producer with the same settings; ``sender.idle.ms`` can differ. It logs to standard error.
On the first SIGTERM or SIGINT it delivers all records and exits with status 0; on a second one it exits at once.

For several shards (``shmaccum.shards``) it forks a sender for each, passes signals on, and waits for them. If it is
killed, the kernel sends them SIGTERM.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Final

from shmaccum.cli.settings_arguments import SETTINGS_HELP, add_settings, address, given_settings
from shmaccum.config import ProducerConfig
from shmaccum.sender.logfile import LOG_FORMAT, SELDOM, begin_log
from shmaccum.sender.process import serve

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG: Final = 1

_EPILOG: Final = f"""\
{SETTINGS_HELP}

With shmaccum.shards it runs a sender for each shard, with shmaccum.name=NAME@K for shard K. If one fails, all end.
The sender stays until a signal ends it, unless sender.idle.ms is set. If another sender serves the slab, it waits: a
sender that a producer started hands its role over, another `shmaccum sender` keeps it until it exits.
Exit status: 0 after SIGTERM, SIGINT or SIGHUP once all is delivered, or at once after a second one, which leaves the
rest to the next sender; 1 if it cannot serve, 2 for wrong settings.

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
    """Serve until stopped."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    for handler in logging.getLogger().handlers:
        handler.addFilter(SELDOM)
    config = ProducerConfig.parse(given_settings(args, {"sender.idle.ms": -1}))
    uid = os.geteuid()
    senders = []
    if len(shards := config.slab_names(uid)) > 1:
        for name in shards:
            pid = _fork()
            if not pid:
                return _serve(config.in_slab(name))
            senders.append(pid)
    with ExitStack() as cleanup:
        if args.metrics_listen is not None:
            # Imported here: without the option, a sender needs no prometheus_client.
            from shmaccum.observe.http_server import MetricsServer
            from shmaccum.observe.prometheus import SlabCollector

            host, port = args.metrics_listen
            server = MetricsServer(host, port, SlabCollector([config.slab_name(uid)]))
            server.start()
            cleanup.callback(server.close)
            logger.info("metrics at %s", server.url)
        return _wait_for(senders) if senders else _serve(config)


def _serve(config: ProducerConfig) -> int:
    log = "standard error"
    if config.sender_log_file:
        log += f", {begin_log(config)}"
    serve(
        config, lambda slab: logger.info("serving slab %s as process %d", slab.name, os.getpid()), log, supervised=True
    )
    logger.info("has left")
    return 0


def _fork() -> int:
    """Fork a process that gets SIGTERM when this one dies; return 0 in it, its pid here."""
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before that
            os.kill(os.getpid(), signal.SIGTERM)
    return pid


def _wait_for(senders: list[int]) -> int:
    """Wait until all senders have ended; return 0, or 1 if one failed, after which the others end."""
    received = []

    def pass_on(number: int, _: FrameType | None = None) -> None:
        received.append(-number)
        for pid in senders:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    result = 0
    while senders:
        pid, status = os.wait()
        senders.remove(pid)
        code = os.waitstatus_to_exitcode(status)
        # A signal that comes again, to a sender that is just leaving, ends it as if it had no handler.
        if code and code not in received and not result:
            result = 1
            logger.error("sender %d ended with status %d; the others follow", pid, code)
            pass_on(signal.SIGTERM)
    return result
