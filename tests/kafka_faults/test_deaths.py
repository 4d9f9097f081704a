"""Processes of ours that are killed: whatever `send` has returned for is in the log once, in order."""

from __future__ import annotations

import random

from kafka_faults.trial import MakeTrial

from tools.kafka import KafkaCluster

SENDERS_KILLED = 10
PRODUCERS_KILLED = 4


def test_sender_killed(kafka: KafkaCluster, trial: MakeTrial) -> None:
    run = trial(kafka)
    run.await_heard()
    chance = random.Random(20)
    for _ in range(SENDERS_KILLED):
        run.await_heard(chance.randrange(1, 100))
        run.kill_sender()
    run.all_arrive()


def test_producers_killed(kafka: KafkaCluster, trial: MakeTrial) -> None:
    run = trial(kafka, producers=3)
    chance = random.Random(12)
    for _ in range(PRODUCERS_KILLED):
        run.await_appended(chance.randrange(1, 100))
        run.kill_producer(chance.choice(list(run.producers)))
    run.await_heard()
    row = run.finish()
    assert not row.wrong, row
    assert not row.verdict.errors
    # The dead have not heard of all that they appended; and of each, the last `send` may not have returned.
    assert row.verdict.acknowledged < row.verdict.records
    assert row.sent - PRODUCERS_KILLED <= row.verdict.records <= row.sent
