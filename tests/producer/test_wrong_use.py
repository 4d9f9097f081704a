"""Uses of a producer that cannot work say what to do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Produce, Settings
from producers import wait_until_gone

from shmaccum import AsyncProducer, Producer
from shmaccum.cli.doctor import Level, slab_findings
from shmaccum.compat import confluent, kafka_python
from shmaccum.errors import ConfigError, SlabMemoryError
from shmaccum.shm import names

ADVICE = "cannot be pickled.*in the process that uses it.*share one slab"


def test_a_producer_is_not_pickled(produce: Produce, settings: Settings) -> None:
    for producer in (produce(), AsyncProducer(settings())):
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"{type(producer).__name__} {ADVICE}"):
                copied(producer)
        with pytest.raises(TypeError, match=ADVICE):
            pickle.dumps({"job": producer.send})


def test_a_producer_of_another_client_is_not_pickled(slab_name: str) -> None:
    own = {"bootstrap.servers": "127.0.0.1:1", "shmaccum.name": slab_name, "sender.idle.ms": 100}
    theirs: list[Any] = [
        confluent.Producer(own),
        confluent.SerializingProducer(own),
        kafka_python.KafkaProducer(bootstrap_servers="127.0.0.1:1", shmaccum_name=f"{slab_name}-k", sender_idle_ms=100),
    ]
    for producer in theirs:
        with pytest.raises(TypeError, match=f"{type(producer).__name__} {ADVICE}"):
            pickle.dumps(producer)
        producer.close()
    wait_until_gone(slab_name)
    wait_until_gone(f"{slab_name}-k")


@pytest.mark.parametrize("make", [Producer, AsyncProducer])
def test_settings_that_are_no_mapping(make: Callable[[Any], Any]) -> None:
    said = r"settings must be a dict, not \w+: {'bootstrap\.servers': 'broker1:9092'}"
    for given in ("broker1:9092", b"broker1:9092", ["broker1:9092"], None, 9092):
        with pytest.raises(ConfigError, match=said):
            make(given)


def test_there_is_no_shared_memory(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "SHM_DIRECTORY", str(tmp_path / "shm"))
    with pytest.raises(SlabMemoryError, match=f"{tmp_path}/shm: No such file or directory.*mount a tmpfs"):
        Producer(settings())
    (found,) = slab_findings()
    assert found.level is Level.PROBLEM
    assert f"{tmp_path}/shm: No such file or directory" in found.text
