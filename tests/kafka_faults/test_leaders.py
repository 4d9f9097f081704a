"""Leaders that move in a cluster of three nodes, and a node that is lost: all is in the log once, in order."""

from __future__ import annotations

import pytest
from brokers import MakeCluster
from kafka_faults.trial import PARTITIONS, MakeTrial

from tools.kafka import KafkaCluster


@pytest.fixture(scope="module")
def cluster(kafka_cluster: MakeCluster) -> KafkaCluster:
    cluster = kafka_cluster(nodes=3)
    cluster.start()
    return cluster


@pytest.fixture
def whole_cluster(cluster: KafkaCluster) -> KafkaCluster:
    """The cluster, with all its nodes."""
    for node in cluster.nodes.values():
        if not node.is_running():
            node.start()
    return cluster


def test_leader_moved(whole_cluster: KafkaCluster, trial: MakeTrial) -> None:
    run = trial(whole_cluster)
    (topic,) = run.topics
    for partition in range(PARTITIONS):
        run.await_heard(50)
        leader = whole_cluster.admin.leaders(topic)[partition]
        whole_cluster.admin.move_leader(topic, partition, to=leader % len(whole_cluster.nodes) + 1)
    run.all_arrive()


def test_node_lost(whole_cluster: KafkaCluster, trial: MakeTrial) -> None:
    run = trial(whole_cluster)
    run.await_heard()
    whole_cluster.nodes[whole_cluster.admin.leaders(run.topics[0])[0]].kill()
    run.await_heard(500)
    run.all_arrive()
