"""What becomes of batches by their answers, pass by pass, on the log."""

from __future__ import annotations

import pytest
from faults import die
from killpoints import die_in
from senders import HandRun, counter
from splitting import T0, T1, StartRun

from shmaccum._core import Process, Super
from shmaccum.accumulator.drain.completer import BatchCompleter
from shmaccum.errors import DeliveryTimeoutError, NetworkError, PolicyViolationError
from shmaccum.sender.response_handler import ResponseHandler


def test_back_off(run: HandRun) -> None:
    run.transport.refuse[T0] = NetworkError
    run.send(T0)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) == 4, after_ms=0)
    head = run.accumulator.map.queues[T0].first()
    assert head is not None
    sent = len(run.transport.sent)
    now = head.last_attempt_ms
    backoff = int(run.accumulator.sender.ready(run.transport.cluster(), now).next_ready_check_delay_ms)
    assert 64 <= backoff <= 96
    run.transport.asked.clear()
    run.sender.run_once(now + backoff - 1)
    run.sender.run_once(now + backoff - 1)
    assert max(run.transport.asked) == 1
    assert len(run.transport.sent) == sent
    run.sender.run_once(now + backoff)
    assert len(run.transport.sent) == sent + 1


def test_delivery_timeout_without_a_leader(start_sender: StartRun) -> None:
    run = start_sender()
    run.accumulator.map.request("t")
    run.run(1, after_ms=0)
    run.transport.no_leader = frozenset({T0})
    failing, fine = run.send(T0), run.send(T1)
    run.run_until(lambda: counter(run, Super.BATCHES_SENT), after_ms=0)
    assert {"t"} in run.transport.updates
    assert fine.get(0).offset == 0
    batch = run.accumulator.map.queues[T0].first()
    assert batch is not None
    run.transport.asked.clear()
    for _ in range(2):
        run.sender.run_once(batch.created_ms + 59_999)
    assert max(run.transport.asked) == 1
    run.sender.run_once(batch.created_ms + 60_000)
    with pytest.raises(DeliveryTimeoutError, match="t-0"):
        failing.get(0)
    assert run.slab.undelivered() == (0, 0)


def test_batches_that_fail_for_one_reason_name_it_and_not_their_last_attempts(run: HandRun) -> None:
    run.transport.refuse[T0] = NetworkError
    future = run.send(T0)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED), after_ms=0)
    incident = run.slab.incidents.note(PolicyViolationError, "no writer on Mondays")
    run.accumulator.sender.abort_incomplete_batches(PolicyViolationError, incident)
    run.accumulator.producer.pending.poll()
    assert str(future.exception()).endswith("no writer on Mondays")


def die_over_completing(run: HandRun) -> None:
    """Be a sender that dies with one refused batch completed and not freed, and the other one in flight."""
    run.begin()
    run.transport.refuse = dict.fromkeys((T0, T1), PolicyViolationError)
    handle = ResponseHandler.handle
    patch = pytest.MonkeyPatch()
    patch.setattr(ResponseHandler, "handle", lambda self, responses, now_ms: handle(self, responses[:1], now_ms))
    patch.setattr(BatchCompleter, "deallocate", lambda *_: die())
    run.run(2)


def test_successor_reports_the_incident_of_a_dead_sender(run: HandRun, start_sender: StartRun) -> None:
    run.resign()
    futures = [run.send(partition) for partition in (T0, T1)]
    die_in(lambda: die_over_completing(start_sender(begin=False)))
    successor = start_sender()
    successor.run_until(lambda: successor.slab.undelivered() == (0, 0))
    ring = run.slab.geometry.process(run.slab.me)
    unread = counter(run, ring + Process.RING_TAIL) - counter(run, ring + Process.RING_HEAD)
    assert unread == 2, "the dead one's completion is not pushed again"
    run.accumulator.producer.pending.poll()
    (error,) = [future.exception() for future in futures if future.failed()]
    assert isinstance(error, PolicyViolationError)
    assert str(error).endswith("forbids the request: not on Sundays")
    assert [future.get(0).offset for future in futures if not future.failed()] == [0]
    assert successor.slab.words[Super.SENDER_STARTS] == 3
    assert successor.accumulator.pool.available_memory() == successor.accumulator.pool.total_memory
