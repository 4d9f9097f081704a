"""What becomes of batches by their answers, pass by pass, on the log."""

from __future__ import annotations

import pytest
from senders import HandRun, counter
from splitting import T0, T1, StartRun

from shmaccum._core import Super
from shmaccum.errors import DeliveryTimeoutError, NetworkError


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
