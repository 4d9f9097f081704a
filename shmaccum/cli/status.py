"""``shmaccum status``: shows slabs without disturbing their users."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from shmaccum.abi import VERSION, shard_of
from shmaccum.cli.settings_arguments import seconds
from shmaccum.cli.terminal import console, table
from shmaccum.errors import escaped
from shmaccum.observe.report import SlabReport, UnreadableSlab, all_reports, as_json, reports_of
from shmaccum.observe.verdict import stopped_holders, tables_in_use
from shmaccum.observe.wording import count, in_bytes, partition_name, role_names, said, since
from shmaccum.shm.inspection import LaneInfo, SenderInfo
from shmaccum.shm.layout import Role, TopicState
from shmaccum.shm.processes import ProcessInfo
from shmaccum.shm.reclaim import sweep

_EPILOG: Final = """\
Reading takes no lock and does not keep a slab alive. An empty slab whose users have all died is shown and
then removed. A slab of another user or another version is listed with the reason why it cannot be read.
docs/status.md describes the JSON.

examples:
  shmaccum status
  shmaccum status orders --watch 1
  shmaccum status --json | jq '.slabs[].sender'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", nargs="?", help="only this slab, or the shards of this name")
    parser.add_argument("--json", action="store_true", help="one JSON object; with --watch, one a line")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=seconds,
        help="repeat every SECONDS until Ctrl-C; waits for a NAME that does not exist yet",
    )


def run(args: argparse.Namespace) -> int:
    """Show the slabs; with ``--watch``, also wait for one that is named."""
    while True:
        waits = args.name is None or args.watch is not None
        slabs = list(all_reports(args.name) if waits else reports_of(args.name))
        if args.json:
            print(json.dumps(as_json(slabs), indent=None if args.watch else 2), flush=True)
        else:
            _show(slabs, args.name, clear=args.watch is not None)
        for name in sweep():
            if not args.json:
                console().print(f"{name}: removed, because it was empty and all of its users have died")
        if args.watch is None:
            return 0
        time.sleep(args.watch)


def _show(slabs: Sequence[SlabReport | UnreadableSlab], name: str | None, *, clear: bool) -> None:
    out = console()
    if clear:
        out.clear()
    out.print(f"shmaccum {VERSION}")
    if not slabs:
        out.print("There is no slab." if name is None else f"There is no slab {name!r} yet.")
    for (base, is_shard), of_base in groupby(slabs, lambda slab: (shard_of(slab.name)[0], "@" in slab.name)):
        together = list(of_base)
        if is_shard and len(together) > 1:
            out.print(f"{base}: {_together(together)}\n")
        for slab in together:
            out.print(Text(slab.name, style="bold"))
            parts = _parts(slab) if isinstance(slab, SlabReport) else (f"  cannot be read: {slab.error}",)
            for part in parts:
                out.print(part)
            out.print()


def _together(shards: Sequence[SlabReport | UnreadableSlab]) -> str:
    """Return the sums over the shards of a name."""
    read = [shard for shard in shards if isinstance(shard, SlabReport)]
    producers = sum(Role.PRODUCER in each.roles and each.alive for shard in read for each in shard.processes)
    queued = sum(each.queued_records for shard in read for each in shard.partitions)
    return (
        f"{count(len(shards), 'shard')}, {count(sum(shard.sender.alive for shard in read), 'sender')}, "
        f"{count(producers, 'producer')}, {in_bytes(sum(shard.memory.used for shard in read))} of "
        f"{in_bytes(sum(shard.memory.total for shard in read))} used, {count(queued, 'record')} queued, "
        f"{count(sum(int(shard.metrics['record-send-total']) for shard in read), 'record')} sent"
    )


def _parts(slab: SlabReport) -> Iterator[RenderableType]:
    memory, metrics, recovery = slab.memory, slab.metrics, slab.recovery
    rate = metrics["compression-rate-avg"]
    created = datetime.fromtimestamp(slab.created_ms / 1000).astimezone()
    yield f"  owner     {slab.owner or 'unknown name'}, user id {slab.owner_uid}"
    yield f"  created   {created:%Y-%m-%d %H:%M:%S %Z}"
    yield (
        f"  memory    {in_bytes(memory.used)} of {in_bytes(memory.total)} used, at most {in_bytes(memory.peak)}; "
        f"{count(memory.slot_count, 'slot')} of {in_bytes(memory.slot_size)}"
    )
    tables = (text + f", nearly full: {advice}" * bool(advice) for text, advice in tables_in_use(slab))
    yield f"  tables    {'; '.join(tables)}"
    if memory.waiting_threads:
        yield f"  waiting   {count(memory.waiting_threads, 'thread')} for memory"
    if slab.bottleneck is not None:
        yield f"  bound     by {slab.bottleneck.bound}: {slab.bottleneck.text}; {slab.bottleneck.advice}"
    yield f"  sender    {_sender(slab.sender)}"
    for holder in stopped_holders(slab):
        yield f"  stopped   {holder.text}"
    if slab.log:
        yield f"  log       {slab.log}"
    for incident in slab.incidents:
        if incident.lasts:
            last = "" if incident.last_ms == incident.first_ms else f" (last {since(incident.last_ms)} ago)"
            yield f"  outage    since {since(incident.first_ms)}: {said(incident)}{last}"
    for incident in slab.incidents[:1]:
        if not incident.lasts:
            yield f"  last      error {since(incident.last_ms)} ago: {said(incident)}"
    yield (
        f"  sent      {count(int(metrics['record-send-total']), 'record')} in "
        f"{count(int(metrics['batch-send-total']), 'batch')} ({metrics['records-per-batch-avg']:,.1f} a batch, "
        f"{metrics['batch-fill-ratio']:.0%} full), {in_bytes(metrics['byte-total'])}"
        + (f", compressed to {rate:.0%}" if 0 < rate < 1 else "")
    )
    yield (
        f"  trouble   {count(int(metrics['record-error-total']), 'record')} failed, "
        f"{int(metrics['record-lost-total']):,} of them after their producer had died, "
        f"{count(int(metrics['batch-retry-total']), 'batch')} sent again; "
        f"{count(recovery.lock_takeovers, 'lock')} taken over, {recovery.rebuilds:,} rebuilt, "
        f"{count(recovery.reclaimed_slots, 'slot')} reclaimed"
    )
    for topic in slab.topics:
        if topic.state is not TopicState.KNOWN:
            yield f"  topic     {topic.name}: {_TOPIC_STATES[topic.state]}"
        if topic.refused and topic.refused_error is not None:
            reasons = ", ".join(f"{calls:,} {reason}" for reason, calls in topic.refused.items())
            last = f"{topic.refused_error.__name__} {since(topic.refused_ms)} ago"
            yield f"  refused   calls of send to {topic.name}: {reasons}; the last: {last}"
    yield ""
    yield table(
        ("PROCESS", "ROLE", "STATE", "RECORDS", "BYTES", "BATCHES", "COMPRESSED", "WAITED ms", "EXHAUSTED"),
        map(_process_row, slab.processes),
        left=3,
    )
    if slab.lanes:
        yield ""
        yield table(
            ("TRANSACTIONAL ID", "PROCESS", "STATE", "OPEN FOR", "PRODUCER ID", "EPOCH"),
            map(_lane_row, slab.lanes),
            left=4,
        )
    if slab.partitions:
        yield ""
        yield table(
            ("PARTITION", "STATE", "QUEUED", "RECORDS", "BYTES", "IN FLIGHT", "SENT", "FAILED", "LAST OFFSET"),
            (
                (
                    partition_name(each),
                    ("no leader" if each.leader is None else f"node {each.leader}") + (", muted" * each.muted),
                    each.queued_batches,
                    each.queued_records,
                    each.queued_bytes,
                    each.in_flight_batches,
                    each.records_sent,
                    each.records_failed,
                    each.last_offset,
                )
                for each in slab.shown_partitions()
            ),
            left=2,
        )


_TOPIC_STATES: Final = {
    TopicState.UNUSED: "not complete yet",
    TopicState.REQUESTED: "requested, no response yet",
    TopicState.FAILED: "there is no such topic",
}


def _sender(sender: SenderInfo) -> str:
    if sender.stopped:
        who = sender.halt()
    elif sender.alive:
        who = f"process {sender.pid}, {'asleep' if sender.asleep else 'awake'}"
    else:
        who = "none" if sender.pid is None else f"none; process {sender.pid} has died"
    return f"{who}; {count(sender.starts, 'start')} so far"


def _lane_row(lane: LaneInfo) -> tuple[object, ...]:
    state = "closed" if lane.opened_ms is None else "open"
    if lane.error is not None:
        state = lane.error.__name__
    return (
        escaped(lane.transactional_id),
        ("dead" if lane.pid is None else f"{lane.pid}, dead") if not lane.alive else str(lane.pid),
        state,
        None if lane.opened_ms is None else since(lane.opened_ms),
        None if lane.producer_id is None else str(lane.producer_id),
        lane.producer_epoch,
    )


def _process_row(process: ProcessInfo) -> tuple[object, ...]:
    return (
        str(process.pid),
        " ".join(role_names(process.roles)) or "-",
        "alive" if process.alive else "dead",
        process.records,
        process.bytes,
        process.batches,
        process.compressed,
        process.wait_ns // 1_000_000,
        process.exhausted,
    )
