"""``shmaccum transactions``: shows the cluster's transactions, and ends those that are left open."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Final

from shmaccum.cli.settings_arguments import SETTINGS_HELP, add_settings, given_settings
from shmaccum.cli.terminal import console, table
from shmaccum.config import ProducerConfig
from shmaccum.errors import InvalidTxnStateError, TransactionalIdNotFoundError
from shmaccum.observe.wording import count
from shmaccum.transactions.administration import ONGOING, STATES, TransactionDescription, Transactions
from shmaccum.transactions.batch_committer import BatchCommitter
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.commit_log import TOPIC
from shmaccum.transactions.coordinator import deadline_after
from shmaccum.transactions.writer_id import Writer

_EPILOG: Final = f"""\
A transaction whose producer is gone hides all that comes behind it in its partitions from read_committed consumers,
until transaction.timeout.ms, or a new producer with its transactional.id, ends it. `abort` ends it now. `recover` ends
all that a dead driver of an exactly-once job or query has left: what it decided is committed, the rest aborted. Needs
DESCRIBE on the transactional ids, and WRITE to end transactions.

{SETTINGS_HELP}

examples:
  shmaccum transactions list -X bootstrap.servers=localhost:9092
  shmaccum transactions list --config producer.properties --prefix orders- --state Ongoing --json
  shmaccum transactions abort orders-1 orders-2 --config producer.properties
  shmaccum transactions recover shmaccum-spark-9fbdad0691d78366- --config producer.properties
"""
_RECOVERY: Final = f"""\
A driver that still runs is fenced: its batch fails. docs/exactly-once.md shows how to find PREFIX.

{SETTINGS_HELP}
"""
_HEADINGS: Final = ("id", "state", "open for", "partitions", "producer id", "epoch", "broker")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    listing = actions.add_parser("list", help="show transactional ids", formatter_class=parser.formatter_class)
    listing.add_argument("--prefix", metavar="TEXT", default="", help="only ids that begin with it")
    of_states = f"only ids in this state, of {', '.join(STATES)}; can be repeated"
    listing.add_argument("--state", metavar="STATE", choices=STATES, action="append", default=[], help=of_states)
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    aborting = actions.add_parser("abort", help="end open transactions", formatter_class=parser.formatter_class)
    aborting.add_argument("ids", metavar="ID", nargs="+", help="a transactional.id")
    recovering = actions.add_parser(
        "recover", help="end what a dead driver has left", formatter_class=parser.formatter_class
    )
    recovering.add_argument(
        "prefix", metavar="PREFIX", help="the ids without what differs: kafka.transactional.id-digits-"
    )
    recovering.add_argument(
        "--commit-log",
        metavar="TOPIC",
        default=TOPIC,
        help="the option commitLogTopic of the query; default: %(default)s",
    )
    for each in (listing, aborting, recovering):
        each.epilog = _RECOVERY if each is recovering else SETTINGS_HELP
        add_settings(each)


def run(args: argparse.Namespace) -> int:
    """List transactions, or end some."""
    config = ProducerConfig.parse(given_settings(args, {"transport": "kafka"}))
    with BrokerClient(config) as client:
        if args.action == "recover":
            return _recover(client, config, args.prefix, args.commit_log)
        transactions = Transactions(client, config)
        if args.action == "abort":
            return max([_abort(transactions, each, deadline_after(config.max_block_ms)) for each in args.ids])
        found = transactions.find(args.prefix, args.state, deadline_after(config.max_block_ms))
    if args.json:
        for each in found:
            print(json.dumps(each._asdict() | {"partitions": [str(partition) for partition in each.partitions]}))
    elif found:
        console().print(table(_HEADINGS, map(_row, found), left=4))
    else:
        print("no transactions")
    return 0


def _abort(transactions: Transactions, transactional_id: str, deadline_ms: float) -> int:
    """Abort a transaction; return the exit status: 1 if there is none, which does not keep the others open."""
    try:
        aborted = transactions.abort(transactional_id, deadline_ms)
    except (InvalidTxnStateError, TransactionalIdNotFoundError) as error:
        print(f"shmaccum transactions: {error}", file=sys.stderr)
        return 1
    where = ", ".join(map(str, aborted.partitions)) or "no partition"
    print(f"aborted the transaction of {transactional_id}, open for {_age(aborted)} in {where}")
    return 0


def _recover(client: BrokerClient, config: ProducerConfig, prefix: str, log: str) -> int:
    """End what a writer's dead driver has left. Raises TransactionalIdNotFoundError: there is no such writer."""
    writer = Writer.with_prefix(prefix, client, config, log)
    if writer is None:
        raise TransactionalIdNotFoundError(
            f"topic {log} has nothing of a writer whose ids begin with {prefix!r}: "
            "give all of an id up to the - behind its 16 digits"
        )
    committed, aborted = BatchCommitter(client, config, writer).recover()
    print(
        f"{writer.name!r}: committed {count(len(committed), 'transaction')} of the last decided batch, "
        f"aborted {count(len(aborted), 'other')}"
    )
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
