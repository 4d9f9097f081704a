"""Orphans, batches of dead processes: a new sender restarts their delivery timeout."""

from __future__ import annotations

import logging
import os
import signal

import pytest
from accumulators import TP0, TP1, Log, add, assert_empty, config_of, created_ms, drain, first, open_accumulator
from fixture_types import Link, LogCapture, Start

from shmaccum._core import Slot, Super
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.expirer import MAX_RENEWALS
from shmaccum.errors import DeliveryTimeoutError, InvalidTopicError, TransactionAbortedError
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators

TIMEOUT_MS = 3200
"""``delivery.timeout.ms`` of these accumulators."""
AGO_MS = 10_000


def append_and_die(link: Link, name: str) -> None:
    accumulator = open_accumulator(config_of(name))
    for number in range(3):
        add(accumulator, TP0, b"%d" % number)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def accumulator(accumulator: Accumulators, start: Start, slab_name: str) -> Accumulators:
    """Return an accumulator to which a process has appended three records, and died."""
    assert start(append_and_die, slab_name).join() == -signal.SIGKILL
    return accumulator


def age(accumulator: Accumulators) -> None:
    """Have the partition's first batch been made long ago."""
    batch = first(accumulator, TP0)
    accumulator.slab.words[accumulator.slab.geometry.header(batch.slot) + Slot.CREATED_MS] -= AGO_MS


@pytest.mark.parametrize("batches_in_flight", [0, 1])
def test_time_without_a_sender_does_not_expire_orphans(accumulator: Accumulators, batches_in_flight: int) -> None:
    age(accumulator)
    long_ago = created_ms(accumulator, TP0)
    if batches_in_flight:
        assert len(drain(accumulator)) == batches_in_flight

    accumulator.sender.recover()

    begun = created_ms(accumulator, TP0)
    assert begun >= long_ago + AGO_MS
    assert accumulator.sender.abort_expired_batches(begun + TIMEOUT_MS - 1) == []
    assert accumulator.sender.expirer.next_expiry_ms == begun + TIMEOUT_MS
    log = Log(accumulator)
    log.take_all()
    assert log.values(TP0) == [b"0", b"1", b"2"]
    assert accumulator.slab.words[Super.RECORDS_LOST] == 0
    assert_empty(accumulator)


def test_living_contributor_keeps_its_timeout(accumulator: Accumulators) -> None:
    future = accumulator.append(TP0, 0, None, b"living").future
    age(accumulator)
    created = created_ms(accumulator, TP0)

    accumulator.sender.recover()

    assert created_ms(accumulator, TP0) == created
    assert len(accumulator.sender.abort_expired_batches(created + TIMEOUT_MS)) == 1
    with pytest.raises(DeliveryTimeoutError):
        future.get(0)
    assert accumulator.slab.words[Super.RECORDS_LOST] == 0


def test_renewals_of_orphans_are_limited(accumulator: Accumulators) -> None:
    """The batch may be what crashes the senders."""
    for _ in range(MAX_RENEWALS):
        age(accumulator)
        accumulator.sender.recover()
        assert accumulator.sender.abort_expired_batches(created_ms(accumulator, TP0) + TIMEOUT_MS - 1) == []
    age(accumulator)
    expiry = created_ms(accumulator, TP0) + TIMEOUT_MS
    accumulator.sender.recover()
    assert created_ms(accumulator, TP0) + TIMEOUT_MS == expiry
    assert len(accumulator.sender.abort_expired_batches(expiry + AGO_MS)) == 1
    assert_empty(accumulator)


@pytest.mark.parametrize("state", ["queued", "in flight", "refused"])
def test_lost_records_of_orphans_are_logged_and_counted(
    accumulator: Accumulators, caplog: LogCapture, state: str
) -> None:
    add(accumulator, TP1)
    batch = first(accumulator, TP0)
    size, expired = batch.size, created_ms(accumulator, TP1) + TIMEOUT_MS  # of both: the other one is older
    if state == "in flight":
        drain(accumulator)
    with caplog.at_level(logging.ERROR):
        if state == "refused":
            accumulator.sender.abort_incomplete_batches(InvalidTopicError)
        else:
            accumulator.sender.abort_expired_batches(expired)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"test-0: lost 3 records of a batch of 3 records and {size} bytes; ")
    assert ("InvalidTopicError: " if state == "refused" else "DeliveryTimeoutError: ") in message
    assert accumulator.slab.words[Super.RECORDS_LOST] == 3
    assert accumulator.slab.words[Super.RECORDS_FAILED] == 4
    if state == "in flight":
        accumulator.sender.release(batch, stored=False)


def test_records_of_a_dead_producers_transaction_that_are_dropped_are_not_lost(
    accumulator: Accumulators, caplog: LogCapture
) -> None:
    batch = first(accumulator, TP0)
    drain(accumulator)
    with caplog.at_level(logging.ERROR):
        accumulator.sender.complete([BatchOutcome(batch, error=TransactionAbortedError)])
    assert not caplog.records
    assert accumulator.slab.words[Super.RECORDS_LOST] == 0


def test_dead_process_entry_is_not_reused_while_its_batches_wait(
    accumulator: Accumulators, start: Start, slab_name: str
) -> None:
    """Otherwise the batch would seem to have a living contributor."""
    accumulator.slab.reap_dead()
    batch = first(accumulator, TP0)
    (dead,) = batch.contributors()
    assert start(take_an_entry, slab_name).result() not in (dead, accumulator.slab.me)
    age(accumulator)
    accumulator.sender.recover()
    assert batch.renewals == 1
    Log(accumulator).take_all()
    assert start(take_an_entry, slab_name).result() == dead


def take_an_entry(link: Link, name: str) -> int:
    accumulator = open_accumulator(config_of(name))
    entry = accumulator.slab.me
    detach(accumulator.slab)
    return entry
