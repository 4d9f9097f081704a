"""Brokers that do not let us in, or not everywhere: those concerned get the error by its name, and nothing hangs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from brokers import MakeCluster
from kafka_faults.trial import MakeTrial

from tools.kafka import Certificates, KafkaCluster
from tools.kafka.settings import USERS


class Scene(NamedTuple):
    """A cluster with TLS, SASL and access rules.

    Attributes:
        keystore: the broker's key and certificate, which it reads when it starts.
        settings: of a producer that it lets in.
    """

    cluster: KafkaCluster
    keystore: Path
    settings: dict[str, object]


@pytest.fixture(scope="module")
def scene(kafka_cluster: MakeCluster, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    keystore = tmp_path_factory.mktemp("keystore") / "broker.pem"
    shutil.copy(certificates.broker.pem, keystore)
    overrides = {"listener.name.client.ssl.keystore.location": keystore}
    cluster = kafka_cluster(sasl=True, certificates=certificates, overrides=overrides)
    cluster.start()
    settings = {
        "ssl.truststore.location": str(certificates.ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
    }
    return Scene(cluster, keystore, settings)


def test_login_refused_for_a_while(scene: Scene, certificates: Certificates, trial: MakeTrial) -> None:
    """The broker comes back with an expired certificate, then with another password, and in the end as it was.

    Nobody who was let in before is failed by that; the records of all processes wait.
    """
    run = trial(scene.cluster, settings=scene.settings)
    run.await_heard()
    scene.cluster.admin.set_password("alice", "another")
    for identity, said in (
        (certificates.expired, "certificate has expired"),
        (certificates.broker, "the broker refused the login"),
    ):
        scene.cluster.nodes[1].kill()
        shutil.copy(identity.pem, scene.keystore)
        scene.cluster.nodes[1].start()
        run.await_said(said)
    scene.cluster.admin.set_password("alice", USERS["alice"])
    run.all_arrive()


def test_one_topic_of_two_is_forbidden(scene: Scene, trial: MakeTrial) -> None:
    # What is stored, and given up and sent again all the same, would be refused the second time.
    patient = {"request.timeout.ms": 60_000}
    run = trial(scene.cluster, topics=2, settings=scene.settings | patient)
    run.await_heard()
    scene.cluster.admin.deny("alice", run.topics[1])
    run.await_heard(1000)
    allowed, forbidden = run.finish_by_topic()
    assert allowed.all_arrived(), allowed
    assert forbidden.all_told(), forbidden
    assert forbidden.verdict.acknowledged > 0
    assert forbidden.verdict.errors.keys() == {"TopicAuthorizationError"}
