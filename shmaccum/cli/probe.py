"""``shmaccum probe``: one slab's health as an exit status, for HEALTHCHECK, readiness and liveness."""

from __future__ import annotations

import argparse
from typing import Final

from shmaccum.errors import SlabNotFoundError
from shmaccum.observe.report import reports_of
from shmaccum.observe.verdict import Level, findings, sender_findings

_EPILOG: Final = """\
It prints what is wrong, and takes no lock. Warnings, such as a slow broker, leave the status at 0. With --sender it
looks at the sender alone. A liveness probe needs that: an outage of the brokers is no reason to restart anything.

Exit status: 0 if the slab is healthy, 1 if records wait or fail or the slab cannot be read, 2 if there is no such slab.

examples:
  shmaccum probe orders               # HEALTHCHECK, readiness
  shmaccum probe orders --sender      # liveness
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="the slab (shmaccum.name), with all of its shards")
    parser.add_argument("--sender", action="store_true", help="only whether its sender runs, or nothing waits for one")


def run(args: argparse.Namespace) -> int:
    """Print the slab's findings; return 0 if it is healthy, 1 if not, 2 if there is no such slab."""
    try:
        slabs = reports_of(args.name)
    except SlabNotFoundError as error:
        print(error)
        return 2
    found = []
    for slab in slabs:
        of_slab = list(sender_findings(slab)) if args.sender else findings(slab)
        for finding in of_slab:
            print(f"{finding.level.name.lower()}: {f'{slab.name}: ' if len(slabs) > 1 else ''}{finding.text}")
        found += of_slab
    if not found:
        print("healthy")
    return int(any(finding.level is Level.FAULT for finding in found))
