"""A damaged slab is refused by an error that names the word; an undamaged one never is."""

from __future__ import annotations

import os
import threading
from multiprocessing.connection import Connection

import pytest
from accumulators import TP0, TP1, Log, add, config_of, drain, first, open_accumulator
from processes import Start
from runs import threads
from slab_helpers import overwrite

from shmaccum._core import Geometry, Partition, Process, Slot, Super, Topic
from shmaccum.errors import SlabDamagedError
from shmaccum.observe.report import report
from shmaccum.shm import validation
from shmaccum.shm.layout import SlotState
from shmaccum.shm.lifecycle import attach, destroy, detach, look
from shmaccum.shm.slab import Slab
from tools.support.accumulators import Accumulators

HUGE = (1 << 64) - 1


def leave_batches(link: Connection, name: str) -> None:
    """Leave a slab in which two batches wait."""
    accumulator = open_accumulator(config_of(name))
    add(accumulator, TP0)
    add(accumulator, TP1)
    batch = first(accumulator, TP0)
    assert batch is not None
    geometry = accumulator.slab.geometry
    link.send((geometry.header(batch.slot), geometry))
    os._exit(0)


@pytest.fixture
def left(slab_name: str, start: Start) -> tuple[str, int, Geometry]:
    """Return a slab's name, the word index of the header of its first batch, and its layout."""
    child = start(leave_batches, slab_name)
    header, geometry = child.hear()
    child.join()
    return slab_name, header, geometry


def words_of(header: int, geometry: Geometry) -> dict[str, tuple[int, int]]:
    """Return damage, as an error names it: a word, and its value."""
    process, topic, partition = geometry.process, geometry.topic(0), geometry.partition
    return {
        "its topic table has 9 entries": (Super.TOPIC_COUNT, 9),
        "its partition table has 33 entries": (Super.PARTITION_COUNT, 33),
        "word SENDER_STARTS of its superblock": (Super.SENDER_STARTS, HUGE),
        "word CREATED_MS of its superblock": (Super.CREATED_MS, 1 << 50),
        "word FLUSHING of process entry 3": (process(3) + Process.FLUSHING, HUGE),
        "word RING_HEAD of process entry 0": (process(0) + Process.RING_HEAD, HUGE),
        "topic entry 0 is in state 4": (topic + Topic.STATE, 4),
        "topic entry 0 has the name": (topic + Topic.NAME_LENGTH, HUGE),
        "topic entry 0 has 33 partitions": (topic + Topic.PARTITIONS, 33),
        "partition entry 1 is number 1 of topic entry 7": (partition(1) + Partition.KEY, 8 << 32 | 1),
        "word NEXT_POSITION of partition entry 2": (partition(2) + Partition.NEXT_POSITION, HUGE),
        "word NEXT_SEQUENCE of partition entry 0": (partition(0) + Partition.NEXT_SEQUENCE, 1 << 47),
        "says state 6": (header + Slot.STATE, SlotState.COMPLETING + 1),
        "2, 0 slots of 10": (header + Slot.SLOTS, 0),
        "2, 11 slots of 10": (header + Slot.SLOTS, 11),
        "2, 18446744073709551615 slots of 10": (header + Slot.SLOTS, HUGE),
        "the chain of 2 slots from slot 0 has 1": (header + Slot.SLOTS, 2),
        "partition entry 4 of 4": (header + Slot.PARTITION, 4),
    }


def test_an_attach_names_a_damaged_word_and_an_undamaged_slab_has_none(left: tuple[str, int, Geometry]) -> None:
    name, header, geometry = left
    for said, (word, value) in words_of(header, geometry).items():
        before = overwrite(name, word, value)
        with pytest.raises(SlabDamagedError, match=said) as refusal:
            attach(name)
        assert f"`shmaccum destroy {name} --force`" in str(refusal.value)
        with pytest.raises(SlabDamagedError, match=said):
            report(name)
        overwrite(name, word, before)
    detach(attach(name))
    assert report(name).memory.waiting_threads == 0
    overwrite(name, Super.TOPIC_COUNT, HUGE)
    with look(name) as view, pytest.raises(SlabDamagedError, match="topic table"):
        view.topics()
    destroy(name, force=True)


def test_a_used_slab_that_looks_unfinished_is_not_recreated(slab: Slab, start: Start) -> None:
    slab.words[Super.READY] = 0
    with pytest.raises(AssertionError, match=f"SlabDamagedError.*process {os.getpid()} uses it"):
        start(attach_anew, slab.name, slab.geometry).result()
    slab.words[Super.READY] = 1


def attach_anew(link: Connection, name: str, geometry: Geometry) -> None:
    detach(attach(name, geometry))


def test_a_slab_in_concurrent_use_is_valid(slab_name: str) -> None:
    """Each rule checks words that other processes are changing."""
    accumulator = open_accumulator(config_of(slab_name))
    slab, log = accumulator.slab, Log(accumulator)
    ended = threading.Event()

    def look_again_and_again(_: int) -> None:
        while not ended.is_set():
            validation.check(slab_name, slab.words, slab.geometry)

    with threads(1, look_again_and_again):
        for number in range(300):
            # Chains of two and three slots, and single ones, take turns in the same memory.
            add(accumulator, (TP0, TP1)[number % 2], bytes((300, 1500, 2500)[number % 3]))
            log.take(drain(accumulator))
        ended.set()
    log.take_all()
    detach(slab)


# --- chains ---------------------------------------------------------------------------------------


def leave_chains(link: Connection, name: str) -> None:
    """Leave a slab with a batch in slot 1 and chains of slots 0, 2, 3 and of slots 4, 5, 6; 7 to 9 are free."""
    accumulator = open_accumulator(config_of(name))
    alone = accumulator.pool.allocate(1, 0)
    add(accumulator, TP0)
    accumulator.pool.deallocate(alone)
    rest = [accumulator.pool.allocate(1, 0) for _ in range(9)]
    accumulator.pool.deallocate(rest[0], *rest[1:3])
    add(accumulator, TP1, bytes(2500))
    accumulator.pool.deallocate(*rest[3:])
    add(accumulator, TP1, bytes(2500))
    link.send(accumulator.slab.geometry)
    os._exit(0)


CHAINS = {
    "of 3 slots from slot 0 continues in slot 10, of 10": (2, 11),
    "of 3 slots from slot 0 continues in slot 18446744073709551614, of 10": (0, HUGE),
    "of 3 slots from slot 0 returns to slot 2": (2, 3),
    "of 3 slots from slot 0 returns to slot 0": (2, 1),
    "of 3 slots from slot 0 has 2": (2, 0),
    "of 3 slots from slot 0 continues in slot 1, which is another batch's": (2, 2),
    "of 3 slots from slot 4 shares slot 3 with the one from slot 0": (5, 4),
    "of 3 slots from slot 0 continues in slot 4, which": (0, 5),
}
"""Damage, as an error names it: the link of a slot."""


def test_an_attach_names_a_damaged_chain_and_ignores_links_that_are_none(slab_name: str, start: Start) -> None:
    child = start(leave_chains, slab_name)
    geometry: Geometry = child.hear()
    child.join()
    for said, (slot, link) in CHAINS.items():
        at = geometry.header(slot) + Slot.CHAIN
        before = overwrite(slab_name, at, link)
        with pytest.raises(SlabDamagedError, match=f"the chain {said}"):
            attach(slab_name)
        overwrite(slab_name, at, before)
    for slot in (2, 7):  # free, in a chain and in no batch
        overwrite(slab_name, geometry.header(slot) + Slot.SLOTS, HUGE)
    for slot in (1, 7, 8, 9):  # a batch of one slot has no links either
        overwrite(slab_name, geometry.header(slot) + Slot.CHAIN, HUGE)
    for link in (2, 5, 8, 11, HUGE):  # of an unfinished growth
        overwrite(slab_name, geometry.header(3) + Slot.CHAIN, link)
        detach(attach(slab_name))
    destroy(slab_name, force=True)


# --- indexes --------------------------------------------------------------------------------------


@pytest.fixture
def queued(slab_name: str) -> Accumulators:
    accumulator = open_accumulator(config_of(slab_name))
    for number in range(3):
        add(accumulator, TP0, b"%d" % number * 600)
    return accumulator


def test_a_damaged_waiter_queue_ring_or_bitmap_is_an_error_and_no_endless_loop(queued: Accumulators) -> None:
    slab, words = queued.slab, queued.slab.words
    before = words[Super.WAITER_HEAD], words[Super.WAITER_TAIL]
    top = 1 << 63
    for ends in ((1, 0), (0, 1 << 60), (top, 1), (1, top), (HUGE, 0), (HUGE, HUGE), (top, top)):
        words[Super.WAITER_HEAD], words[Super.WAITER_TAIL] = ends
        with pytest.raises(SlabDamagedError, match="waiter queue"):
            queued.pool.reclaim()
        with pytest.raises(SlabDamagedError, match=r"waiter queue|word WAITER_"):
            report(slab.name)
    words[Super.WAITER_HEAD], words[Super.WAITER_TAIL] = before
    words[slab.geometry.process(slab.me) + Process.RING_TAIL] += 1 << 40
    with pytest.raises(SlabDamagedError, match="completion ring"):
        queued.producer.pending.poll()
    slab.buffer[slab.geometry.bitmap] |= 1
    words[Super.FREE_SLOTS] += 1
    with pytest.raises(SlabDamagedError, match="slot 0 is free"):
        queued.pool.allocate(1, 0)
    assert queued.pool.allocate(1, 0).slot == 3
    detach(slab)
    destroy(slab.name, force=True)


# --- no damage ------------------------------------------------------------------------------------


def test_an_unexplained_error_is_damage_and_an_unrelated_one_stays_unchanged(slab: Slab) -> None:
    with pytest.raises(SlabDamagedError, match="contradict each other") as damage, slab.reporting_damage():
        slab.processes.info(1 << 40)
    assert damage.value.__cause__ is not None
    with pytest.raises(ValueError, match="mine"), slab.reporting_damage():
        raise ValueError("mine")
