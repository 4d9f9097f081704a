"""A network that cuts, loses and holds back: what was stored is not stored again, and what was not is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from kafka_faults.table import Table
from kafka_faults.trial import Trial
from proxy import PRODUCE, Proxy

from tools.kafka import KafkaCluster

CUTS = (0, 3, 30, 100, 1000, 2500)
"""Bytes of a request that arrive: nothing, not even its size, its header, some of a batch, a batch and more."""


class Scene(NamedTuple):
    cluster: KafkaCluster
    proxy: Proxy


@pytest.fixture(scope="module")
def scene(kafka_cluster: Callable[..., KafkaCluster]) -> Iterator[Scene]:
    cluster = kafka_cluster()
    with Proxy(cluster.nodes[1].port) as proxy:
        cluster.nodes[1].advertised_port = proxy.port
        cluster.start()
        yield Scene(cluster, proxy)


def test_cut_in_the_middle_of_a_request(scene: Scene, trial: Callable[..., Trial], table: Table) -> None:
    run = trial("connection cut in the middle of a request", scene.cluster)
    run.start_producers()
    for after in CUTS:
        run.await_heard(100)
        scene.proxy.cut_request(PRODUCE, after).wait()
    run.await_heard()
    row = table.finish(run)
    assert row.all_arrived(), row


def test_responses_lost(scene: Scene, trial: Callable[..., Trial], table: Table) -> None:
    run = trial("responses lost after the batches were stored", scene.cluster)
    run.start_producers()
    lose_responses(scene.proxy, run)
    row = table.finish(run)
    assert row.all_arrived(), row


def test_responses_lost_without_idempotence(scene: Scene, trial: Callable[..., Trial], table: Table) -> None:
    """Nobody can do better here; that these trials see it is what makes them worth something."""
    run = trial("the same with enable.idempotence=false", scene.cluster, settings={"enable.idempotence": False})
    run.start_producers()
    lose_responses(scene.proxy, run)
    row = table.finish(run)
    assert row.duplicated > 0
    assert row.found == row.acknowledged + row.duplicated
    assert row.sent == row.acknowledged
    assert not row.errors


def lose_responses(proxy: Proxy, run: Trial) -> None:
    for cut in (True, True, True, False):
        run.await_heard(100)
        proxy.lose_response(PRODUCE, cut=cut).wait()
    run.await_heard()


def test_stalled_past_the_request_timeout(scene: Scene, trial: Callable[..., Trial], table: Table) -> None:
    run = trial("network stalled past request.timeout.ms", scene.cluster)
    run.start_producers()
    for _ in range(2):
        run.await_heard()
        scene.proxy.stall()
        run.await_retries()
        scene.proxy.resume()
    run.await_heard()
    row = table.finish(run)
    assert row.all_arrived(), row
