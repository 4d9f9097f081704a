"""Trials of faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka_faults.trial import MakeTrial, Trial
from processes import Start

from tools.kafka import KafkaCluster


@pytest.fixture
def trial(start: Start, slab_name: str, tmp_path: Path, topic: str) -> Iterator[MakeTrial]:
    """Return ``trial(cluster, topics=2, ...)``: a trial with ``topics`` topics, and two producers at work.

    Creates the topics, with ``topic_settings``, if the cluster runs. Other arguments go to `Trial`.
    """
    trials: list[Trial] = []

    def make(
        cluster: KafkaCluster,
        topics: int = 1,
        *,
        topic_settings: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        producers: int = 2,
        **options: Any,
    ) -> Trial:
        names = tuple(f"{topic}-{number}" for number in range(topics))
        trials.append(Trial(cluster, start, slab_name, tmp_path, names, settings or {}, **options))
        if any(node.is_running() for node in cluster.nodes.values()):
            trials[-1].make_topics(topic_settings or {})
        trials[-1].start_producers(producers)
        return trials[-1]

    yield make
    for each in trials:
        each.abandon()
