"""The command: runs the checks one by one, and shows each finding at once."""

from __future__ import annotations

import argparse
import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final

from rich.text import Text

from shmaccum.cli.doctor.cluster import cluster_findings, log_findings
from shmaccum.cli.doctor.finding import Finding, Level
from shmaccum.cli.doctor.host import host_findings
from shmaccum.cli.doctor.slabs import slab_findings
from shmaccum.cli.settings_arguments import SETTINGS_HELP, add_settings, given_settings, seconds
from shmaccum.cli.terminal import console
from shmaccum.config import ProducerConfig
from shmaccum.observe.wording import count, printable

_EPILOG: Final = f"""\
Give it the producers' settings: then it checks their slab's memory, and connects and logs in as they do. It changes
nothing, and never starts a sender. Run it as the producers' user, on their host or in their container.

{SETTINGS_HELP}

Exit status: 0 if nothing is broken (there can be warnings), 1 if there is a problem, 2 for wrong settings.

examples:
  shmaccum doctor
  shmaccum doctor --config producer.properties
  shmaccum doctor -X bootstrap.servers=broker1:9092 --json | jq -r 'select(.level != "ok") | .advice'
"""
_STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_TEXT_COLUMN: Final = 22


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    add_settings(parser)
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=10.0, help="wait so long for a broker [%(default)s]"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Check, and show what is found.

    Raises:
        ConfigError: a setting is wrong.
    """
    given = given_settings(args, {})
    has_transport = bool({"bootstrap.servers", "transport"} & given.keys())
    # Without an address there is no cluster to check, but all the rest can be.
    settings = given if has_transport else given | {"bootstrap.servers": "localhost:9092"}
    config = ProducerConfig.parse(settings)
    checks: Iterator[Finding] = chain(host_findings(config), slab_findings())
    if config.transport == "log":
        checks = chain(checks, log_findings(config))
    elif has_transport:
        checks = chain(checks, cluster_findings(settings, args.timeout))
    levels: Counter[Level] = Counter()
    with _silence():
        for finding in checks:
            levels[finding.level] += 1
            if args.json:
                print(json.dumps(finding._asdict()), flush=True)
            else:
                _show(finding)
    if not args.json:
        if not has_transport:
            console().print("\nNo broker was checked: give the producers' settings by --config or -X.")
        console().print(f"\n{count(levels[Level.PROBLEM], 'problem')}, {count(levels[Level.WARNING], 'warning')}")
    return 1 if levels[Level.PROBLEM] else 0


@contextmanager
def _silence() -> Iterator[None]:
    """Log nothing of failed connections: the findings say it."""
    logger = logging.getLogger("shmaccum")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _show(finding: Finding) -> None:
    line = Text(f"{finding.level:<8}", style=_STYLES[finding.level])
    line.append(f" {finding.subject:<{_TEXT_COLUMN - 10}} {printable(finding.text)}", style="default")
    console().print(line)
    if finding.advice:
        console().print(" " * _TEXT_COLUMN + finding.advice)
