"""What users bring along from other clients: the ways in which they give headers, serializers, settings, timeouts."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fixture_types import Produce, Settings
from producers import stopped_sender, wait_until, wait_until_gone
from senders import read_partition

from shmaccum import AsyncProducer, Producer, RecordMetadata, TopicPartition
from shmaccum.cli.doctor import Level, slab_findings
from shmaccum.compat import confluent, kafka_python
from shmaccum.errors import ConfigError, IllegalArgumentError, KafkaTimeoutError, SerializationError, SlabMemoryError
from shmaccum.shm import names


class TopicSerializer:
    """Serializes as kafka-python's ``Serializer`` does."""

    def serialize(self, topic: str, data: Any) -> bytes:
        return f"{topic}: {data}".encode()


class CallableSerializer(TopicSerializer):
    """Can be called, too; what counts is its method."""

    def __call__(self, data: Any) -> bytes:
        raise AssertionError(data)


class NeedsMore(TopicSerializer):
    """Cannot be made by a producer."""

    def __init__(self, registry: str) -> None:
        self.registry = registry


def test_a_serializer_gets_the_topic(join: Produce, kept_log: Path, topic: str) -> None:
    for serializer in (TopicSerializer, TopicSerializer(), CallableSerializer()):
        producer = join(value_serializer=serializer, key_serializer=json.dumps)
        metadata = producer.send(topic, 5, {"a": 1}, partition=0).get(20)
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (8, len(topic) + 3)
        with pytest.raises(SerializationError, match=r"value\.serializer or interceptor\.classes"):
            producer.send_batch(topic, pa.record_batch({"value": ["columns"]}))
    found = [(record.key, record.value) for record in read_partition(kept_log, topic)]
    assert found == [(b'{"a": 1}', f"{topic}: 5".encode())] * 3


def test_what_is_no_serializer(settings: Settings) -> None:
    said = r"value\.serializer: NeedsMore\(\) cannot be instantiated without arg"
    with pytest.raises(SerializationError, match=said):
        Producer(settings(value_serializer=NeedsMore))
    with pytest.raises(ConfigError, match=r"key\.serializer = 5: expected a callable, an object with a method serial"):
        Producer(settings(key_serializer=5))


def test_headers_can_be_a_dict_and_text(producer: Producer, kept_log: Path, topic: str) -> None:
    producer.send(topic, b"v", headers={"a": "1", "b": b"2", "c": None}, partition=0)
    producer.send(topic, b"v", headers=[("a", "1"), ("a", b"2")], partition=0).get(20)
    found = [record.headers for record in read_partition(kept_log, topic, while_written=True)]
    assert [list(headers) for headers in found] == [[("a", b"1"), ("b", b"2"), ("c", None)], [("a", b"1"), ("a", b"2")]]


def test_metadata_has_sizes_and_the_partition(producer: Producer, topic: str) -> None:
    sent = [(b"", None), (b"key", b"value"), (None, b""), ("größe", bytearray(70_000)), (None, None)]
    found: list[RecordMetadata] = []
    for key, value in sent:
        producer.send(topic, value, key, partition=2, on_delivery=lambda error, metadata: found.append(metadata))
    producer.flush(20)
    sizes = [(each.serialized_key_size, each.serialized_value_size) for each in found]
    assert sizes == [(0, -1), (3, 5), (-1, 0), (7, 70_000), (-1, -1)]
    assert {each.topic_partition for each in found} == {TopicPartition(topic, 2)}


def test_a_timeout_that_is_negative_or_no_number_is_refused(producer: Producer) -> None:
    no_numbers: list[Any] = ["5", [1], 10**400]
    for methods, timeouts, said in (
        ((producer.flush, producer.close), [-1, -0.001, math.nan], "at least 0 s"),
        ((producer.poll, producer.flush, producer.close), no_numbers, "a number of seconds"),
    ):
        for method, timeout in itertools.product(methods, timeouts):
            with pytest.raises(IllegalArgumentError, match=rf"timeout = .*: must be {said}"):
                method(timeout)
    assert producer.send("t", b"still open").get(20).topic == "t"


def test_without_time_to_block_known_topics_are_enough(produce: Produce) -> None:
    """A producer that never waits: what the sender knows of a topic is there for all."""
    produce().partitions_for("t")
    hasty = produce(max_block_ms=0)
    assert hasty.send("t", b"v").get(20).offset == 0
    assert len(hasty.send_batch("t", pa.record_batch({"value": ["v"] * 5000})).get(20).offsets) == 5000
    # Else the sender could answer before the call looks.
    said = r"u not present in metadata after 0 ms.*max\.block\.ms = 0.*requested"
    with (
        stopped_sender(hasty),
        pytest.raises(KafkaTimeoutError, match=said),
    ):
        hasty.send("u", b"v")
    wait_until(lambda: hasty._accumulator.state.map.topics["u"].partition_count, "the sender has asked")
    assert hasty.send("u", b"v").get(20).offset == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shmaccum_slot_size": 1024}, r"buffer\.memory = 1099511627776: must be at most 17179868160 "),
        ({"batch_size": 1 << 27}, r"batch\.size = 134217728: must be at most 117440505; "),
    ],
)
def test_memory_beyond_the_layout(settings: Settings, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Producer(settings(segment_bytes=1 << 30, buffer_memory=1 << 40, **changes))


def test_a_producer_of_a_file(kept: Settings, tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in kept(linger_ms=7).items()))
    with Producer.from_file(file) as producer:
        assert producer.config.linger_ms == 7
        assert producer.send("t", b"v").get(20).offset >= 0
    with pytest.raises(ConfigError, match=r"cannot read settings from .*missing: No such file"):
        Producer.from_file(tmp_path / "missing")


# --- uses that cannot work say what to do -------------------------------------------------------------

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
