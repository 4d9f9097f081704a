"""``shmaccum transactions``: shows the cluster's transactions, and aborts those that are left open."""

from __future__ import annotations

import argparse
import json
import time
from typing import Final

from shmaccum.cli.settings_arguments import SETTINGS_HELP, add_settings, given_settings
from shmaccum.cli.terminal import console, count, table
from shmaccum.config import ProducerConfig
from shmaccum.transactions.administration import ONGOING, STATES, TransactionDescription, Transactions
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.coordinator import deadline_after

_EPILOG: Final = f"""\
A transaction whose producer is gone hides all that comes behind it in its partitions from read_committed consumers,
until transaction.timeout.ms, or a new producer with its transactional.id, ends it. `abort` ends it now. Needs
DESCRIBE on the transactional ids, and WRITE to abort.

{SETTINGS_HELP}

examples:
  shmaccum transactions list -X bootstrap.servers=localhost:9092
  shmaccum transactions list --config producer.properties --prefix orders- --state Ongoing --json
  shmaccum transactions abort orders-1 --config producer.properties
"""
_HEADINGS: Final = ("id", "state", "open for", "partitions", "producer id", "epoch", "broker")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("action", choices=("list", "abort"), help="what to do")
    parser.add_argument("id", metavar="ID", nargs="?", help="abort: the transactional.id")
    parser.add_argument("--prefix", metavar="TEXT", default="", help="list: only ids that begin with it")
    of_states = f"list: only ids in this state, of {', '.join(STATES)}; can be repeated"
    parser.add_argument("--state", metavar="STATE", choices=STATES, action="append", default=[], help=of_states)
    parser.add_argument("--json", action="store_true", help="list: one JSON object a line")
    add_settings(parser)
    parser.set_defaults(parser=parser)


def run(args: argparse.Namespace) -> int:
    """List transactions, or abort one.

    Raises:
        ConfigError: a setting is wrong.
        KafkaError: a broker did not answer, or refused.
    """
    if (args.action == "abort") != (args.id is not None):
        args.parser.error(
            "abort takes the transactional.id" if args.action == "abort" else "list takes no ID: use --prefix"
        )
    config = ProducerConfig.parse(given_settings(args, {"transport": "kafka"}))
    with BrokerClient(config) as client:
        transactions = Transactions(client, config)
        deadline_ms = deadline_after(config.max_block_ms)
        if args.action == "abort":
            aborted = transactions.abort(args.id, deadline_ms)
            where = ", ".join(map(str, aborted.partitions)) or "no partition"
            print(f"aborted the transaction of {args.id}, open for {_age(aborted)} in {where}")
            return 0
        found = transactions.find(args.prefix, args.state, deadline_ms)
    if args.json:
        for each in found:
            print(json.dumps(each._asdict() | {"partitions": [str(partition) for partition in each.partitions]}))
    elif found:
        console().print(table(_HEADINGS, map(_row, found), left=4))
    else:
        print("no transactions")
    return 0


def _row(each: TransactionDescription) -> tuple[object, ...]:
    is_open = each.state == ONGOING
    return (
        each.transactional_id,
        each.state,
        _age(each) if is_open else None,
        ", ".join(map(str, each.partitions)) or None,
        each.producer_id,
        each.producer_epoch,
        each.coordinator,
    )


def _age(each: TransactionDescription) -> str:
    return count(max(0, round(time.time() - each.started_ms / 1000)), "second")
