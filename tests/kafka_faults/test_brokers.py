"""Brokers that die, are down, or stop: every record is in the log once, in order, as soon as there is a broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_faults.trial import Row, Trial

from tools.kafka import KafkaCluster


@pytest.fixture(scope="module")
def cluster(kafka_cluster: Callable[..., KafkaCluster]) -> KafkaCluster:
    cluster = kafka_cluster()
    cluster.start()
    return cluster


def all_arrived(row: Row) -> bool:
    """Say whether nothing happened to any record."""
    assert row.wrong == []
    assert not row.errors
    return row.sent == row.acknowledged == row.found


def test_killed_and_restarted(cluster: KafkaCluster, trial: Callable[..., Trial], finish: Callable[..., Row]) -> None:
    run = trial("broker killed and restarted", cluster)
    run.start_producers()
    for _ in range(2):
        run.await_heard()
        cluster.nodes[1].kill()
        run.await_appended()
        cluster.nodes[1].start()
    run.await_heard()
    assert all_arrived(finish(run))
