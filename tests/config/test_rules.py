"""Which settings contradict each other, and which are fitted to the others."""

import logging
import re
from typing import Any

import pytest

from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import INT_MAX
from shmaccum.errors import ConfigError


def parse(**given: object) -> ProducerConfig:
    """Parse settings written with underscores, and a log.dir."""
    return ProducerConfig.parse(
        {"transport": "log", "log.dir": "out"} | {name.replace("_", "."): value for name, value in given.items()}
    )


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


@pytest.mark.parametrize("given", [2, True, 1.0])
def test_other_acks_are_refused(given: object) -> None:
    assert_refused("acks = .*", acks=given)


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
class TestIdempotenceThatIsNotPossible:
    def test_the_default_becomes_false(self, conflict: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "shmaccum"):
            assert parse(**conflict).enable_idempotence is False
        (record,) = caplog.records
        (value,) = conflict.values()
        assert str(value) in record.getMessage()

    def test_is_refused_where_it_was_asked_for(self, conflict: dict[str, object]) -> None:
        ((name, value),) = conflict.items()
        obstacle = re.escape(f"{name.replace('_', '.')} = {value}")
        assert_refused(
            f"enable.idempotence = True: not possible with {obstacle};.*", enable_idempotence=True, **conflict
        )

    def test_is_no_matter_where_it_is_off(self, conflict: dict[str, object]) -> None:
        assert parse(enable_idempotence="false", **conflict).enable_idempotence is False


def test_idempotence_names_all_obstacles() -> None:
    assert_refused(".* retries = 0 and acks = 1;.*", enable_idempotence=True, acks="1", retries=0)


@pytest.mark.parametrize("version", ["0.11", "0.11.0.0", "0.11.0-IV2", "1.0", "2.8-IV1", "10.0", "v2"])
def test_idempotence_from_record_batches_on(version: str) -> None:
    assert parse(enable_idempotence=True, message_format_version=version).enable_idempotence is True


def test_too_many_in_flight_are_refused_even_if_idempotence_is_a_default() -> None:
    message = "max.in.flight.requests.per.connection = 6: idempotence allows at most 5; .*enable.idempotence to false"
    assert_refused(message, max_in_flight_requests_per_connection=6)
    assert_refused(message, max_in_flight_requests_per_connection=6, enable_idempotence=True)
    assert parse(max_in_flight_requests_per_connection=6, enable_idempotence=False)
    assert parse(max_in_flight_requests_per_connection=5).enable_idempotence is True


class TestDeliveryTimeout:
    def test_is_raised_where_it_was_not_given(self, caplog: pytest.LogCaptureFixture) -> None:
        config = parse(linger_ms=100_000, request_timeout_ms=30_000)

        assert config.delivery_timeout_ms == 130_000
        assert "130000" in caplog.text

    def test_is_refused_where_it_was_given(self) -> None:
        message = "delivery.timeout.ms = 30004: must be at least linger.ms .* request.timeout.ms, which is 30005"
        assert_refused(message, delivery_timeout_ms=30_004)
        assert parse(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005

    def test_is_bounded_as_in_kafka(self) -> None:
        assert parse(linger_ms=2**62).delivery_timeout_ms == INT_MAX
        assert parse(linger_ms=2**62, delivery_timeout_ms=INT_MAX).delivery_timeout_ms == INT_MAX

    def test_stays_where_it_is_long_enough(self, caplog: pytest.LogCaptureFixture) -> None:
        assert parse(linger_ms=90_000).delivery_timeout_ms == 120_000
        assert caplog.text == ""


class TestMemory:
    @pytest.mark.parametrize(
        ("changes", "slot_size"),
        [
            ({}, 16384),
            ({"batch_size": 0}, 16384),
            ({"batch_size": 1_000_000}, 16384),
            ({"buffer_memory": 10_001}, 10_000),
            ({"shmaccum_slot_size": 20_001}, 20_000),
            ({"batch_size": 1_000_000, "message_format_version": "0.10.2", "enable_idempotence": False}, 1_000_000),
        ],
    )
    def test_has_slots_of_whole_words(self, changes: dict[str, Any], slot_size: int) -> None:
        assert parse(**changes).shmaccum_slot_size == slot_size

    def test_has_a_slot_for_each_shard(self) -> None:
        message = "shmaccum.slot.size = 1024: must be at most buffer.memory divided by 64 shards, which is 1023"
        kafka = {"transport": "kafka", "bootstrap_servers": "b:1"}
        assert_refused(message, buffer_memory=65535, shmaccum_shards=64, **kafka)

    def test_holds_a_slot_that_was_given(self) -> None:
        message = "shmaccum.slot.size = 32769: must be at most buffer.memory, which is 32768"
        assert_refused(message, buffer_memory=32768, shmaccum_slot_size=32769)

    def test_holds_a_request_that_was_given(self) -> None:
        message = "max.request.size = 32769: must be at most buffer.memory, which is 32768; .*"
        assert_refused(message, buffer_memory=32768, max_request_size=32769)
        assert parse(buffer_memory=32768, max_request_size=32768).max_request_size == 32768

    def test_lowers_a_request_that_was_not_given(self) -> None:
        assert parse(buffer_memory=32768).max_request_size == 32768

    def test_says_nothing_of_requests_smaller_than_a_batch(self) -> None:
        assert parse(max_request_size=1000).max_request_size == 1000


def test_zstd_needs_record_batches() -> None:
    assert_refused(
        "compression.type = zstd: message.format.version v1 .*", compression_type="zstd", message_format_version="v1"
    )
    assert parse(compression_type="zstd", message_format_version="0.11").compression_type == "zstd"
    assert parse(compression_type="lz4", message_format_version="v1").compression_type == "lz4"


def test_the_log_needs_a_directory() -> None:
    with pytest.raises(ConfigError, match=r"^log\.dir is missing"):
        ProducerConfig.parse({"transport": "log"})
    with pytest.raises(ConfigError, match=r"^log\.dir is missing"):
        ProducerConfig.parse({"transport": "log", "log.dir": ""})


def test_a_segment_takes_a_full_batch() -> None:
    assert_refused("segment.bytes = 8192: must be at least batch.size, which is 16384; .*", segment_bytes=8192)
    assert_refused(
        "segment.bytes = 8192: must be at least shmaccum.slot.size, which is 16384; .*",
        segment_bytes=8192,
        batch_size=8192,
    )
    assert parse(segment_bytes=8192, batch_size=8192, shmaccum_slot_size=8192).segment_bytes == 8192


def test_the_slab_has_room_for_a_topic() -> None:
    assert_refused(
        "num.partitions = 4097: must be at most shmaccum.max.partitions, which is 4096; .*",
        num_partitions=4097,
        shmaccum_max_partitions=4096,
    )
    assert parse(num_partitions=4097, shmaccum_max_partitions=4097).num_partitions == 4097


@pytest.mark.parametrize(
    ("changes", "grown"),
    [
        ({}, 2**20),
        ({"max_request_size": 2**19}, 2**19),
        ({"buffer_memory": 2**23}, 2**19),
        ({"segment_bytes": 2**18}, 2**18),
        ({"batch_size": 2**21}, 2**21),
    ],
)
def test_batches_grow_within_a_request_a_segment_and_a_sixteenth_of_the_memory(
    changes: dict[str, int], grown: int
) -> None:
    assert parse(**changes).batch_max_bytes == grown


def test_a_batch_that_no_request_can_hold_is_refused() -> None:
    assert_refused(
        "batch.max.bytes = 1048577: must be at most max.request.size, which is 1048576; .*", batch_max_bytes=2**20 + 1
    )
    assert_refused(
        "batch.max.bytes = 70000: must be at most segment.bytes, which is 65536; .*",
        batch_max_bytes=70_000,
        segment_bytes=65_536,
    )
    assert parse(batch_max_bytes=1).batch_max_bytes == 1, "they do not grow"


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


class TestTransportKafka:
    def test_needs_brokers(self) -> None:
        with pytest.raises(ConfigError, match=r"^bootstrap\.servers is missing: .*host:port,\.\.\.$"):
            ProducerConfig.parse({})

    def test_is_not_exchanged_for_the_log_in_silence(self) -> None:
        with pytest.raises(
            ConfigError, match=r"^bootstrap\.servers is missing: .*; .* log\.dir, set transport to log$"
        ):
            ProducerConfig.parse({"log.dir": "out"})

    def test_is_the_default(self) -> None:
        assert ProducerConfig.parse({"bootstrap.servers": "a:1"}).transport == "kafka"

    def test_sends_record_batches(self) -> None:
        given = {"bootstrap.servers": "a:1", "message.format.version": "v1"}
        with pytest.raises(ConfigError, match=r"^message\.format\.version = v1: transport kafka sends record batches"):
            ProducerConfig.parse(given)
        assert ProducerConfig.parse(given | {"message.format.version": "0.11.0"})


class TestReconnectBackoff:
    def test_is_constant_where_only_the_first_was_given(self) -> None:
        assert parse(reconnect_backoff_ms=7).reconnect_backoff_max_ms == 7
        assert parse(reconnect_backoff_ms=7, reconnect_backoff_max_ms=9).reconnect_backoff_max_ms == 9
        assert parse(reconnect_backoff_max_ms=9).reconnect_backoff_ms == 50


class TestShards:
    """Slabs that producers with equal settings are divided among."""

    @staticmethod
    def parse(**given: object) -> ProducerConfig:
        return parse(**{"transport": "kafka", "bootstrap_servers": "b:1"} | given)

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
        assert_refused(
            r"shmaccum.slot.size = 20000: must be at most buffer.memory divided by 4 shards, which is 16384",
            transport="kafka",
            bootstrap_servers="b:1",
            shmaccum_shards=4,
            buffer_memory=65536,
            shmaccum_slot_size=20000,
        )

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

    @pytest.mark.parametrize(
        ("message", "given"),
        [
            ("shmaccum.shards = 2: transport log has one sender; set 1", {"shmaccum_shards": 2}),
            ("shmaccum.name = 'x@2': shard 2 of 2, .*", {"shmaccum_shards": 2, "shmaccum_name": "x@2"} | {
                "transport": "kafka", "bootstrap_servers": "b:1"}),
            ("shmaccum.name = 'x@1': shard 1 of 1, .*", {"shmaccum_name": "x@1"}),
            ("shmaccum.shards = 0: .*", {"shmaccum_shards": 0}),
            ("shmaccum.shards = 65: .*", {"shmaccum_shards": 65}),
            ("shmaccum.name = 'x@': .*", {"shmaccum_name": "x@"}),
        ],
    )  # fmt: skip
    def test_what_is_not_possible(self, message: str, given: dict[str, object]) -> None:
        assert_refused(message, **given)
