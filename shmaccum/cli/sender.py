"""``shmaccum sender``: be the sender of a slab in the foreground, as systemd and containers want it.

It shares the slab of every producer that has the same settings: how long a sender stays is not one of those that
must agree. Its messages go to standard error. SIGTERM or SIGINT has it deliver what is there and leave with
status 0; a second one, leave at once.
"""

from __future__ import annotations

import argparse
import logging
import os
from typing import Final

from shmaccum.cli.settings_arguments import SETTINGS_HELP, add_settings, given_settings
from shmaccum.config import ProducerConfig
from shmaccum.sender.logfile import LOG_FORMAT, begin_log
from shmaccum.sender.process import serve
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)

_EPILOG: Final = f"""\
{SETTINGS_HELP}

A sender in the foreground stays until it is told to leave, unless sender.idle.ms says otherwise. Where another sender
serves, it waits: one that a producer started hands its role over, another `shmaccum sender` keeps it until it ends.
Exit status: 0 after SIGTERM, SIGINT or SIGHUP once all is delivered, 1 if it cannot serve, 2 for wrong settings.

examples:
  shmaccum sender --config /etc/shmaccum.properties
  shmaccum sender -X bootstrap.servers=broker1:9092,broker2:9092
  shmaccum sender -X transport=log -X log.dir=/var/lib/shmaccum -X num.partitions=8
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.epilog = _EPILOG
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped.

    Raises:
        ConfigError: a setting is wrong.
        ShmaccumError: why it cannot serve.
        OSError: its log file cannot be written.
    """
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    config = ProducerConfig.parse(given_settings(args, {"sender.idle.ms": -1}))
    log = "standard error"
    if config.sender_log_file:
        log += f", {begin_log(config)}"
    serve(config, _say_serving, log, supervised=True)
    logger.info("has left")
    return 0


def _say_serving(slab: Slab) -> None:
    logger.info("serving slab %s as process %d", slab.name, os.getpid())
