"""Which settings contradict each other, and which are fitted to the others."""

import logging
import re
from typing import Any

import pytest

from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import INT_MAX
from shmaccum.errors import ConfigError

KAFKA = {"transport": "kafka", "bootstrap_servers": "b:1"}


def parse(**given: object) -> ProducerConfig:
    """Parse settings written with underscores, and a log.dir; None leaves one of these out."""
    given = {"transport": "log", "log_dir": "out"} | given
    return ProducerConfig.parse({name.replace("_", "."): value for name, value in given.items() if value is not None})


def assert_refused(message: str, **given: object) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(**given)
    assert re.fullmatch(message, str(refused.value)), str(refused.value)


@pytest.mark.parametrize(
    ("spelling", "meaning"),
    [("-1", "all"), ("all", "all"), ("1", "1"), ("0", "0"), (-1, "all"), (1, "1"), (0, "0")],
)
def test_acks_have_one_spelling(spelling: object, meaning: str) -> None:
    assert parse(acks=spelling).acks == meaning


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Idempotence needs record batches.
        *[
            ({"enable_idempotence": True, "message_format_version": version}, {"enable_idempotence": True})
            for version in ("0.11", "0.11.0.0", "0.11.0-IV2", "1.0", "2.8-IV1", "10.0", "v2")
        ],
        ({"max_in_flight_requests_per_connection": 5}, {"enable_idempotence": True}),
        ({"max_in_flight_requests_per_connection": 6, "enable_idempotence": False}, {"enable_idempotence": False}),
        # The delivery timeout is bounded as in Kafka.
        ({"delivery_timeout_ms": 30_005}, {"delivery_timeout_ms": 30_005}),
        ({"linger_ms": 2**62}, {"delivery_timeout_ms": INT_MAX}),
        ({"linger_ms": 2**62, "delivery_timeout_ms": INT_MAX}, {"delivery_timeout_ms": INT_MAX}),
        # Slots have whole words.
        ({}, {"shmaccum_slot_size": 16384}),
        ({"batch_size": 0}, {"shmaccum_slot_size": 16384}),
        ({"batch_size": 1_000_000}, {"shmaccum_slot_size": 16384}),
        ({"buffer_memory": 10_001}, {"shmaccum_slot_size": 10_000}),
        ({"shmaccum_slot_size": 20_001}, {"shmaccum_slot_size": 20_000}),
        (
            {"batch_size": 1_000_000, "message_format_version": "0.10.2", "enable_idempotence": False},
            {"shmaccum_slot_size": 1_000_000},
        ),
        # The memory holds a request.
        ({"buffer_memory": 32768}, {"max_request_size": 32768}),
        ({"buffer_memory": 32768, "max_request_size": 32768}, {"max_request_size": 32768}),
        ({"max_request_size": 1000}, {"max_request_size": 1000}),
        ({"compression_type": "zstd", "message_format_version": "0.11"}, {"compression_type": "zstd"}),
        ({"compression_type": "lz4", "message_format_version": "v1"}, {"compression_type": "lz4"}),
        ({"segment_bytes": 8192, "batch_size": 8192, "shmaccum_slot_size": 8192}, {"segment_bytes": 8192}),
        ({"num_partitions": 4097, "shmaccum_max_partitions": 4097}, {"num_partitions": 4097}),
        # Batches grow within a request, a segment and a sixteenth of the memory; those of one byte do not.
        ({}, {"batch_max_bytes": 2**20}),
        ({"max_request_size": 2**19}, {"batch_max_bytes": 2**19}),
        ({"buffer_memory": 2**23}, {"batch_max_bytes": 2**19}),
        ({"segment_bytes": 2**18}, {"batch_max_bytes": 2**18}),
        ({"batch_size": 2**21}, {"batch_max_bytes": 2**21}),
        ({"batch_max_bytes": 1}, {"batch_max_bytes": 1}),
        # The back-off is constant where only the first was given.
        ({"reconnect_backoff_ms": 7}, {"reconnect_backoff_max_ms": 7}),
        ({"reconnect_backoff_ms": 7, "reconnect_backoff_max_ms": 9}, {"reconnect_backoff_max_ms": 9}),
        ({"reconnect_backoff_max_ms": 9}, {"reconnect_backoff_ms": 50}),
        (KAFKA | {"message_format_version": "0.11.0"}, {}),
    ],
)
def test_settings_that_fit_and_those_that_follow(given: dict[str, Any], expected: dict[str, object]) -> None:
    config = parse(**given)
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("message", "given"),
    [
        *[("acks = .*", {"acks": given}) for given in (2, True, 1.0)],
        (".* retries = 0 and acks = 1;.*", {"enable_idempotence": True, "acks": "1", "retries": 0}),
        *[
            (
                "max.in.flight.requests.per.connection = 6: idempotence allows at most 5; "
                ".*enable.idempotence to false",
                {"max_in_flight_requests_per_connection": 6} | also,
            )
            for also in ({}, {"enable_idempotence": True})
        ],
        (
            "delivery.timeout.ms = 30004: must be at least linger.ms .* request.timeout.ms, which is 30005",
            {"delivery_timeout_ms": 30_004},
        ),
        (
            "shmaccum.slot.size = 1024: must be at most buffer.memory divided by 64 shards, which is 1023",
            KAFKA | {"buffer_memory": 65535, "shmaccum_shards": 64},
        ),
        (
            "shmaccum.slot.size = 20000: must be at most buffer.memory divided by 4 shards, which is 16384",
            KAFKA | {"buffer_memory": 65536, "shmaccum_shards": 4, "shmaccum_slot_size": 20000},
        ),
        (
            "shmaccum.slot.size = 32769: must be at most buffer.memory, which is 32768",
            {"buffer_memory": 32768, "shmaccum_slot_size": 32769},
        ),
        (
            "max.request.size = 32769: must be at most buffer.memory, which is 32768; .*",
            {"buffer_memory": 32768, "max_request_size": 32769},
        ),
        (
            "compression.type = zstd: message.format.version v1 .*",
            {"compression_type": "zstd", "message_format_version": "v1"},
        ),
        ("log.dir is missing.*", {"log_dir": None}),
        ("log.dir is missing.*", {"log_dir": ""}),
        ("segment.bytes = 8192: must be at least batch.size, which is 16384; .*", {"segment_bytes": 8192}),
        (
            "segment.bytes = 8192: must be at least shmaccum.slot.size, which is 16384; .*",
            {"segment_bytes": 8192, "batch_size": 8192},
        ),
        (
            "num.partitions = 4097: must be at most shmaccum.max.partitions, which is 4096; .*",
            {"num_partitions": 4097, "shmaccum_max_partitions": 4096},
        ),
        (
            "batch.max.bytes = 1048577: must be at most max.request.size, which is 1048576; .*",
            {"batch_max_bytes": 2**20 + 1},
        ),
        (
            "batch.max.bytes = 70000: must be at most segment.bytes, which is 65536; .*",
            {"batch_max_bytes": 70_000, "segment_bytes": 65_536},
        ),
        (
            "message.format.version = v1: transport kafka sends record batches.*",
            KAFKA | {"message_format_version": "v1"},
        ),
        # Log is not chosen in silence.
        ("bootstrap.servers is missing: .*host:port,...", {"transport": None, "log_dir": None}),
        ("bootstrap.servers is missing: .*; .* log.dir, set transport to log", {"transport": None}),
        ("shmaccum.shards = 2: transport log has one sender; set 1", {"shmaccum_shards": 2}),
        ("shmaccum.name = 'x@2': shard 2 of 2, .*", KAFKA | {"shmaccum_shards": 2, "shmaccum_name": "x@2"}),
        ("shmaccum.name = 'x@1': shard 1 of 1, .*", {"shmaccum_name": "x@1"}),
        ("shmaccum.shards = 0: .*", {"shmaccum_shards": 0}),
        ("shmaccum.shards = 65: .*", {"shmaccum_shards": 65}),
        ("shmaccum.name = 'x@': .*", {"shmaccum_name": "x@"}),
    ],
)
def test_settings_that_contradict_each_other(message: str, given: dict[str, object]) -> None:
    assert_refused(message, **given)


def test_kafka_is_the_default_transport() -> None:
    assert ProducerConfig.parse({"bootstrap.servers": "a:1"}).transport == "kafka"


@pytest.mark.parametrize(
    "conflict",
    [
        {"acks": "0"},
        {"acks": "1"},
        {"retries": 0},
        {"message_format_version": "v1"},
        {"message_format_version": "0.10.2"},
        {"message_format_version": "0.10.2-IV0"},
    ],
)
def test_idempotence_that_is_not_possible(conflict: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    """The default becomes false; where it was asked for, it is refused."""
    ((name, value),) = conflict.items()
    with caplog.at_level(logging.INFO, "shmaccum"):
        assert parse(**conflict).enable_idempotence is False
    (record,) = caplog.records
    assert str(value) in record.getMessage()
    obstacle = re.escape(f"{name.replace('_', '.')} = {value}")
    assert_refused(f"enable.idempotence = True: not possible with {obstacle};.*", enable_idempotence=True, **conflict)
    assert parse(enable_idempotence="false", **conflict).enable_idempotence is False


def test_a_delivery_timeout_that_was_not_given_is_raised_if_it_is_too_short(caplog: pytest.LogCaptureFixture) -> None:
    assert parse(linger_ms=90_000).delivery_timeout_ms == 120_000
    assert caplog.text == ""
    assert parse(linger_ms=100_000, request_timeout_ms=30_000).delivery_timeout_ms == 130_000
    assert "130000" in caplog.text


@pytest.mark.parametrize(
    ("buffer_memory", "topics", "partitions"),
    [(1 << 20, 512, 4096), (32 << 20, 10_922, 32_768), (1 << 37, 100_000, 200_000)],
)
def test_the_tables_follow_the_memory(buffer_memory: int, topics: int, partitions: int) -> None:
    config = parse(buffer_memory=buffer_memory)
    assert (config.shmaccum_max_topics, config.shmaccum_max_partitions) == (topics, partitions)
    same = parse(buffer_memory=buffer_memory, shmaccum_max_topics=" AUTO ", shmaccum_max_partitions=partitions)
    assert same.slab_digest(0) == config.slab_digest(0)
    assert parse(buffer_memory=buffer_memory, shmaccum_max_topics=7).shmaccum_max_topics == 7


class TestShards:
    """Slabs that producers with equal settings are divided among."""

    @staticmethod
    def parse(**given: object) -> ProducerConfig:
        return parse(**KAFKA | given)

    @pytest.mark.parametrize(("cores", "shards"), [(1, 1), (8, 1), (15, 1), (16, 2), (64, 8), (128, 16)])
    def test_auto_is_one_for_every_eight_cores(self, cores: int, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shmaccum.config.rules.usable_cores", lambda: cores)
        config = self.parse(shmaccum_shards="auto")
        assert config.shmaccum_shards == shards
        assert parse(shmaccum_shards="auto").shmaccum_shards == 1, "transport log has one sender"
        sender = ProducerConfig.from_json(config.in_slab("x" if shards == 1 else "x@0").to_json(0))
        assert sender.shmaccum_shards == shards

    def test_the_memory_is_divided(self) -> None:
        one, four = self.parse(), self.parse(shmaccum_shards=4)
        assert (one.slab_memory, four.slab_memory) == (32 << 20, 8 << 20)
        assert four.batch_max_bytes == 512 << 10
        assert self.parse(shmaccum_shards=40).max_request_size == (32 << 20) // 40

    def test_names(self) -> None:
        alone, named, auto = (
            self.parse(),
            self.parse(shmaccum_shards=2, shmaccum_name="x"),
            self.parse(shmaccum_shards=2),
        )
        assert alone.slab_names(0) == alone.shard_names(0) == [alone.slab_name(0)]
        assert named.slab_names(0) == named.shard_names(0) == ["x@0", "x@1"]
        chosen = named.in_slab("x@1")
        assert (chosen.slab_names(0), chosen.shard_names(0)) == (["x@1"], ["x@0", "x@1"])
        assert auto.slab_names(0) == [f"{auto.slab_name(0)}@{number}" for number in (0, 1)]
        assert auto.slab_name(0) != alone.slab_name(0)
        again = ProducerConfig.from_json(auto.in_slab(auto.slab_names(0)[1]).to_json(0))
        assert again.slab_names(0) == auto.slab_names(0)[1:]
        assert again.slab_digest(0) == auto.in_slab(auto.slab_names(0)[1]).slab_digest(0)
