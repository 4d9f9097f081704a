"""Checks of the slabs that this host has: who waits, and for what."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from shmaccum.cli.doctor.finding import Finding, Level
from shmaccum.errors import SlabMemoryError
from shmaccum.observe.report import SlabReport, UnreadableSlab, all_reports
from shmaccum.observe.verdict import stopped_holders, tables_in_use
from shmaccum.observe.wording import count
from shmaccum.shm import names
from shmaccum.shm.files import is_of_others


def slab_findings() -> Iterator[Finding]:
    """Check all slabs."""
    try:
        slabs = list(all_reports())
    except SlabMemoryError as error:
        yield Finding(Level.PROBLEM, "slabs", str(error))
        return
    if not slabs:
        yield Finding(Level.OK, "slabs", "there are none")
    for slab in slabs:
        if isinstance(slab, UnreadableSlab) and is_of_others(names.segment_path(slab.name)):
            yield Finding(Level.OK, "slab", f"{slab.name}: {slab.error}")
        elif isinstance(slab, UnreadableSlab):
            advice = "if it is of another version, look at it with that version"
            yield Finding(Level.WARNING, "slab", f"{slab.name} cannot be read: {slab.error}", advice)
        else:
            yield from _of(slab)


def _of(slab: SlabReport) -> Iterator[Finding]:
    found = list(_troubles(slab))
    yield from found
    if not found:
        yield Finding(Level.OK, "slab", f"{slab.name}: nothing is wrong")


def _troubles(slab: SlabReport) -> Iterator[Finding]:
    name, sender = slab.name, slab.sender
    waiting = sum(each.queued_batches + each.in_flight_batches for each in slab.partitions)
    if sender.stopped:
        advice = f"kill -CONT {sender.pid}, if nobody debugs it"
        yield Finding(Level.PROBLEM, "slab", f"{name}: its sender, {sender.halt()}", advice)
    for found in stopped_holders(slab):
        yield Finding(
            Level.PROBLEM, "slab", f"{name}: {found.text}", "kill -CONT it, if nobody debugs it; or kill -KILL it"
        )
    if waiting and not sender.stopped and not sender.alive:
        advice = f"shmaccum sender with the producers' settings delivers them; shmaccum destroy {name} drops them"
        yield Finding(Level.WARNING, "slab", f"{name}: {count(waiting, 'batch')}, and no sender", advice)
    yield from _rights(slab)
    for incident in slab.incidents:
        if incident.lasts:
            yield Finding(Level.PROBLEM, "slab", f"{name}: {incident}", "shmaccum doctor with its settings shows more")
    if slab.bottleneck is not None:
        level = Level.WARNING if slab.memory.waiting_threads else Level.OK
        text = f"{name}: bound by {slab.bottleneck.bound}: {slab.bottleneck.text}"
        yield Finding(level, "slab", text, slab.bottleneck.advice)
    elif slab.memory.waiting_threads:
        text = f"{name}: {count(slab.memory.waiting_threads, 'thread')} waiting for memory"
        yield Finding(Level.WARNING, "slab", text, "see what keeps its batches from being sent")
    for text, advice in tables_in_use(slab):
        if advice:
            yield Finding(Level.WARNING, "slab", f"{name}: {text} in use", f"{advice}, in a new slab")


def _rights(slab: SlabReport) -> Iterator[Finding]:
    """Check that every file of a slab belongs to its owner alone: else producers and senders refuse it."""
    for path in names.leftovers(slab.name):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            continue  # it comes and goes with a process
        if status.st_uid != slab.owner_uid or status.st_mode & 0o077:
            text = f"{slab.name}: {path} has mode {stat.filemode(status.st_mode)} and user id {status.st_uid}"
            advice = f"chmod 600 {path}; chown {slab.owner_uid} {path}"
            yield Finding(Level.PROBLEM, "slab", text, advice)
