"""A broker that dies, is down at first, or stops: every record is in the log once, in order."""

from __future__ import annotations

import pytest
from brokers import MakeCluster
from kafka_faults.trial import MakeTrial

from tools.kafka import KafkaCluster


@pytest.fixture(scope="module")
def cluster(kafka_cluster: MakeCluster) -> KafkaCluster:
    cluster = kafka_cluster()
    cluster.start()
    return cluster


def test_broker_killed_and_restarted_loses_nothing(cluster: KafkaCluster, trial: MakeTrial) -> None:
    run = trial(cluster)
    run.await_heard()
    cluster.nodes[1].kill()
    run.await_appended()
    cluster.nodes[1].start()
    run.all_arrive()


def test_broker_stopped_past_request_timeout_loses_nothing(cluster: KafkaCluster, trial: MakeTrial) -> None:
    run = trial(cluster)
    run.await_heard()
    cluster.nodes[1].pause()
    run.await_retries()
    cluster.nodes[1].resume()
    run.all_arrive()


def test_broker_down_at_start_loses_nothing(cluster: KafkaCluster, trial: MakeTrial) -> None:
    cluster.nodes[1].kill()
    run = trial(cluster)
    run.await_said("Connection refused")
    cluster.nodes[1].start()
    run.make_topics({})
    run.all_arrive()
