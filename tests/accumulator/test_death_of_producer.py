"""A killed or interrupted producer: its records are delivered, and it blocks no other process."""

from __future__ import annotations

import contextlib
import random
import time

import pytest
from accumulators import (
    BATCH_SIZE,
    CLUSTER,
    NODE0,
    TP0,
    TP1,
    Log,
    add,
    assert_empty,
    config_of,
    created_ms,
    drain,
    first,
    open_accumulator,
)
from faults import interrupted_by_alarm
from fixture_types import Link, OpenAccumulator, Start
from killpoints import die, die_in
from runs import interrupts

from shmaccum._core import Process
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators
from tools.support.locks import held


def test_death_before_commit_leaves_no_record(accumulator: Accumulators) -> None:
    """Bytes behind the committed ones are ignored."""
    add(accumulator, TP0, b"before")
    batch = first(accumulator, TP0)
    start = accumulator.slab.geometry.slot(batch.slot) + batch.size

    def write_and_die() -> None:
        with held(accumulator.map.queues[TP0].lock):
            accumulator.slab.buffer[start : start + 50] = b"\xff" * 50
            die()

    die_in(write_and_die)
    add(accumulator, TP0, b"after")
    log = Log(accumulator)
    log.take_all()
    assert log.values(TP0) == [b"before", b"after"]


def append_and_say(link: Link, name: str, count: int, processes: int = 16) -> None:
    accumulator = open_accumulator(config_of(name, shmaccum_max_processes=processes))
    for number in range(count):
        accumulator.append((TP0, TP1)[number % 2], 0, None, b"%d" % number)
    link.send("appended")
    time.sleep(60)


def flush_and_say(link: Link, name: str) -> None:
    accumulator = open_accumulator(config_of(name, linger_ms=100_000, delivery_timeout_ms=200_000))
    accumulator.producer.pending.begin_flush("flush")
    link.send("flushing")
    time.sleep(60)


def test_flush_of_a_dead_producer_ends(accumulate: OpenAccumulator, slab_name: str, start: Start) -> None:
    """Once its table entry is free, the batches of others linger again."""
    accumulator = accumulate(linger_ms=100_000, delivery_timeout_ms=200_000)
    victim = start(flush_and_say, slab_name)
    assert victim.hear() == "flushing"
    add(accumulator, TP0)
    now = created_ms(accumulator, TP0)
    assert accumulator.sender.ready(CLUSTER, now).ready_nodes == {NODE0}
    victim.kill()
    accumulator.slab.reap_dead()
    assert not accumulator.sender.ready(CLUSTER, now).ready_nodes


def test_reused_process_entry_ignores_completions_of_the_dead(
    accumulate: OpenAccumulator, slab_name: str, start: Start
) -> None:
    """Completions that were meant for a dead process find another in its table entry, where there was no other."""
    accumulator = accumulate(shmaccum_max_processes=2)
    accumulator.slab.become_sender()  # or the last place would be kept for one
    victim = start(append_and_say, slab_name, 2, 2)
    assert victim.hear() == "appended"
    victim.kill()
    in_flight = drain(accumulator)
    accumulator.slab.reap_dead()
    heir = start(append_and_wait, slab_name, 2)
    assert heir.hear() == "appended"
    (entry,) = set(accumulator.slab.processes.in_use()) - {accumulator.slab.me}
    assert in_flight[0].contributors() == [entry]
    log = Log(accumulator)
    log.take(in_flight)
    log.take_all()
    assert heir.result() == 1  # the offset behind the dead one's
    words, base = accumulator.slab.words, accumulator.slab.geometry.process(entry)
    assert words[base + Process.RING_TAIL] == 3


def append_and_wait(link: Link, name: str, processes: int) -> int:
    accumulator = open_accumulator(config_of(name, shmaccum_max_processes=processes))
    future = accumulator.append(TP0, 0, None, b"heir").future
    link.send("appended")
    offset = future.get(30).offset
    detach(accumulator.slab)
    return offset


@pytest.mark.parametrize("size", [0, BATCH_SIZE // 2])
def test_interrupted_append_is_whole_or_absent(accumulate: OpenAccumulator, size: int) -> None:
    """Ctrl-C in `append`: whole or not at all, no memory is lost, and no flush waits for what never comes."""
    accumulator = accumulate(buffer_memory=256 * BATCH_SIZE)
    chance = random.Random(size)

    with interrupted_by_alarm() as set_alarm:
        for _ in range(50):
            appended = 0
            with contextlib.suppress(KeyboardInterrupt):
                set_alarm(chance.uniform(1e-5, 3e-4))
                while True:
                    accumulator.append(TP0, 0, None, b"%d" % appended + bytes(size))
                    appended += 1
            log = Log(accumulator)
            log.take_all()
            found = [int(value.rstrip(b"\0")) for value in log.values(TP0) if value]
            assert found in (list(range(appended)), list(range(appended + 1)))
            accumulator.producer.flush(0)
            assert accumulator.pool.available_memory() == accumulator.pool.total_memory
    assert_empty(accumulator)


@pytest.mark.parametrize("again", [*range(12), 20, 30])
def test_interrupted_cleanup_frees_slots_with_the_next_batch(accumulate: OpenAccumulator, again: int) -> None:
    """What the first interrupt left in a thread's hands, and the second kept there, goes back with its next batch."""
    accumulator = accumulate(buffer_memory=2 * BATCH_SIZE)
    accumulator.append(TP1, 0, None, b"other")
    for interrupt in interrupts(again):
        with interrupt:
            accumulator.append(TP0, 0, None, b"victim")
        accumulator.append(TP0, 0, None, b"next", max_block_ms=0)
        log = Log(accumulator)
        log.take(drain(accumulator))
        assert log.values(TP0)[-1] == b"next"
        accumulator.producer.clean_up()
        assert accumulator.pool.available_memory() == accumulator.pool.total_memory
        accumulator.append(TP1, 0, None, b"other")
    Log(accumulator).take_all()
    assert_empty(accumulator)
