"""A network that cuts, loses and holds back: what was stored is not stored again, and what was not is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from brokers import MakeCluster, started_behind_proxy
from kafka_faults.trial import MakeTrial, Trial

from tools.kafka import KafkaCluster
from tools.support.messages import PRODUCE
from tools.support.proxy import Proxy

CUTS = (0, 3, 30, 100, 1000, 2500)
"""Bytes of a request that arrive: nothing, not even its size, its header, some of a batch, a batch and more."""


class Scene(NamedTuple):
    cluster: KafkaCluster
    proxy: Proxy


@pytest.fixture(scope="module")
def scene(kafka_cluster: MakeCluster) -> Iterator[Scene]:
    cluster = kafka_cluster()
    with started_behind_proxy(cluster) as proxy:
        yield Scene(cluster, proxy)


def test_connection_cut_within_a_request(scene: Scene, trial: MakeTrial) -> None:
    run = trial(scene.cluster)
    for after in CUTS:
        run.await_heard(100)
        scene.proxy.cut_request(PRODUCE, after).wait()
    run.all_arrive()


def test_responses_lost(scene: Scene, trial: MakeTrial) -> None:
    run = trial(scene.cluster)
    lose_responses(scene.proxy, run)
    run.all_arrive()


def test_responses_lost_without_idempotence(scene: Scene, trial: MakeTrial) -> None:
    """Nobody can do better here; that these trials see it is what makes them worth something."""
    run = trial(scene.cluster, settings={"enable.idempotence": False})
    lose_responses(scene.proxy, run)
    row = run.finish()
    assert row.verdict.counts["duplicated"] > 0
    assert row.verdict.records == row.verdict.acknowledged + row.verdict.counts["duplicated"]
    assert row.sent == row.verdict.acknowledged
    assert not row.verdict.errors


def test_sender_killed_over_a_response(scene: Scene, trial: MakeTrial) -> None:
    """What the broker has stored, and no sender has heard of, is sent again by the next one."""
    run = trial(scene.cluster)
    for _ in range(3):
        run.await_heard(100)
        scene.proxy.lose_response(PRODUCE, cut=False).wait()
        run.kill_sender()
    run.all_arrive()


def lose_responses(proxy: Proxy, run: Trial) -> None:
    for cut in (True, True, True, False):
        run.await_heard(100)
        proxy.lose_response(PRODUCE, cut=cut).wait()
    run.await_heard()
