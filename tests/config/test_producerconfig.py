"""The identity of a slab, and the way of the settings to the sender."""

import json
import os
import sys
from pathlib import Path

import pytest
from fixture_types import MonkeyPatch
from runs import run_python

from shmaccum.config import ProducerConfig
from shmaccum.config.configdef import Group, Importance, Scope, Setting
from shmaccum.config.valuetypes import STRING
from shmaccum.errors import ConfigError

UID = 1000
LOG = {"transport": "log", "log.dir": "/data/out"}
SPARK_OPTIONS = LOG | {"linger.ms": "20", "batch.size": "32768", "enable.idempotence": "TRUE", "acks": "-1"}
PYTHON_SETTINGS = {
    "acks": "all",
    "enable.idempotence": True,
    "batch.size": 32768,
    "linger.ms": 20,
    "transport": "log",
    "log.dir": Path("/data/x/../out"),
    "max.block.ms": 7,
    "value.serializer": json.dumps,
}
OTHER_VALUES = {
    "acks": "1",
    "bootstrap.servers": "a:1",
    "buffer.memory": 2**20,
    "enable.idempotence": False,
    "log.dir": "/data/other",
    "sasl.oauthbearer.token.provider": "tokens.fetch",
    "sasl.username": "me",
    "shmaccum.max.topics": 8,
}
SECRETS = sorted(name for name, each in ProducerConfig.settings.items() if each.is_secret and "jaas" not in name)


def parse(**given: object) -> ProducerConfig:
    return ProducerConfig.parse(LOG | given)


def identity(config: ProducerConfig) -> tuple[str, int]:
    return config.slab_name(UID), config.slab_digest(UID)


def test_equal_settings_name_the_same_slab_however_they_were_given() -> None:
    assert identity(ProducerConfig.parse(SPARK_OPTIONS)) == identity(ProducerConfig.parse(PYTHON_SETTINGS))


def test_equal_settings_name_the_same_slab_in_every_process() -> None:
    program = (
        "from shmaccum.config import ProducerConfig\n"
        f"config = ProducerConfig.parse({SPARK_OPTIONS!r})\n"
        f"print(config.slab_name({UID}), config.slab_digest({UID}))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = run_python("-c", program, env=environment, cwd="/")

    name, digest = other.stdout.split()
    assert (name, int(digest)) == identity(ProducerConfig.parse(SPARK_OPTIONS))


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_setting_of_the_slab_changes_its_identity(name: str) -> None:
    config, other = parse(), parse(**{name: OTHER_VALUES[name]})

    assert config.slab_name(UID) != other.slab_name(UID)
    assert config.slab_digest(UID) != other.slab_digest(UID)


OF_NO_SLAB: dict[str, dict[str, object]] = {
    "a default that is written out": {"linger.ms": 5, "retries": "2147483647"},
    "one producer": {"compression.type": "lz4", "linger.ms": 6, "interceptor.classes": [dict], "key.serializer": repr},
    "the newest value holds": {"client.id": "me", "compression.gzip.level": 1, "num.partitions": 2},
    "one sender": {"sender.core.dump": True, "sender.idle.ms": -1, "sender.log.file": "/data/sender.log"},
}


@pytest.mark.parametrize("given_settings", OF_NO_SLAB.values(), ids=OF_NO_SLAB)
def test_other_settings_do_not_change_the_identity(given_settings: dict[str, object]) -> None:
    assert identity(parse(**given_settings)) == identity(parse())


def needed_with(secret: str) -> dict[str, object]:
    """Return what else has to be given with a secret."""
    return {"ssl.keystore.certificate.chain": "chain", "ssl.keystore.key": "key"} if "keystore" in secret else {}


class TestSecrets:
    """They keep producers apart, but not by the slab's name, which everybody on the host can see."""

    @pytest.mark.parametrize("name", SECRETS)
    def test_are_no_part_of_the_name_and_not_shown(self, name: str) -> None:
        needed = needed_with(name)
        one, other = parse(**needed | {name: "guess me"}), parse(**needed | {name: "other"})

        assert one.slab_name(UID) == other.slab_name(UID)
        self.assert_only_their_digests_differ(one, other)
        assert "guess me" not in repr(one)
        with pytest.raises(ConfigError) as refused:
            parse(**needed | {name: ["guess me"]})
        assert "guess me" not in str(refused.value)

    def test_are_salted_with_the_name(self) -> None:
        self.assert_only_their_digests_differ(
            *(parse(**{"sasl.password": "guess me", "shmaccum.name": name}) for name in ("one", "other"))
        )

    @staticmethod
    def assert_only_their_digests_differ(one: ProducerConfig, other: ProducerConfig) -> None:
        digests = one.slab_digest(UID), other.slab_digest(UID)
        assert digests[0] >> 32 == digests[1] >> 32
        assert digests[0] != digests[1]

    def test_have_no_digest_where_there_are_none(self) -> None:
        assert parse().slab_digest(UID) % (1 << 32) == 0

    def test_are_the_same_for_the_sender(self) -> None:
        config = parse(**{"sasl.password": "guess me"})

        assert identity(ProducerConfig.from_json(config.to_json(UID))) == identity(config)


def test_versions_share_a_slab_if_they_lay_it_out_alike(monkeypatch: MonkeyPatch) -> None:
    before = identity(parse())
    monkeypatch.setattr("shmaccum.config.producerconfig.VERSION", "99.0")
    assert identity(parse()) == before
    monkeypatch.setattr("shmaccum.config.producerconfig.ABI_VERSION", 99)
    assert parse().slab_name(UID) != before[0]
    assert parse().slab_digest(UID) == before[1]


def test_a_version_with_a_new_setting_finds_the_slab_of_the_one_before() -> None:
    """As long as it has its default."""

    class Later(ProducerConfig, group="Slab"):
        __slots__ = ()
        batch_color = Setting(STRING, "red", Importance.LOW, Scope.SLAB)

    assert identity(Later.parse(LOG)) == identity(parse())
    assert identity(Later.parse(LOG | {"batch.color": "blue"})) != identity(parse())


def test_a_name_is_derived_or_given_and_is_not_part_of_the_digest() -> None:
    derived = parse()
    name = derived.slab_name(UID)
    assert name != derived.slab_name(UID + 1), "users do not share a slab"
    assert name.startswith("auto-")
    for given_name in ("orders_v2-b", name):
        named = parse(**{"shmaccum.name": given_name})
        assert named.slab_name(UID) == named.slab_name(UID + 1) == given_name
        assert named.slab_digest(UID) == derived.slab_digest(UID)


MANY: dict[str, object] = {
    "acks": "0",
    "batch.size": 0,
    "buffer.memory": 2**33,
    "linger.ms": 2**63 - 1,
    "request.timeout.ms": 0,
    "retries": 2,
    "message.format.version": "0.10.2",
    "sender.idle.ms": -1,
    "shmaccum.name": "orders_v2-b",
    "max.block.ms": 0,
}


@pytest.mark.parametrize("given", [{}, MANY, {"log.dir": "/data/ä ö\n"}])
def test_the_sender_gets_the_settings_of_the_slab_and_its_own(given: dict[str, object]) -> None:
    """And the slab's name, as another version of the package may derive another one; but no callable."""
    config = parse(**given | {"value.serializer": json.dumps})
    received = ProducerConfig.from_json(config.to_json(UID))

    assert identity(received) == identity(config)
    sent = config.as_dict() | {"shmaccum.name": config.slab_name(UID)}
    for name, setting in ProducerConfig.settings.items():
        assert received[name] == (setting.default if setting.group == Group.PRODUCER else sent[name])


def test_a_setting_of_another_version_is_left_out_unless_it_matters() -> None:
    handed = json.loads(parse().to_json(UID))
    handed["settings"] |= {"batch.color": "blue", "linger.mood": 3}
    taken = [ProducerConfig.from_json(text).as_dict() for text in (json.dumps(handed), parse().to_json(UID))]
    assert taken[0] == taken[1]
    handed["fixed"].append("batch.color")
    with pytest.raises(ConfigError, match=r"has no setting batch\.color, which the program that started this sender"):
        ProducerConfig.from_json(json.dumps(handed))


def test_values_of_the_slab_replace_own_values() -> None:
    config = parse(**{"client.id": "mine", "linger.ms": 7})
    there = {"client.id": "theirs", "linger.ms": 9, "retry.backoff.ms": -5, "batch.color": "blue"}
    held = config.with_shared(there)

    assert (held.client_id, held.linger_ms, held.retry_backoff_ms) == ("theirs", 7, config.retry_backoff_ms)
    assert config.client_id == "mine"


def test_no_secret_is_among_what_the_slab_holds() -> None:
    config = parse(**{"sasl.password": "guess me", "sasl.username": "me"})

    held = json.dumps([config.fixed_settings(), config.shared_settings()])
    assert "guess me" not in held
    assert config.fixed_settings()["sasl.username"] == "me"
    assert "shmaccum.name" not in config.fixed_settings()


@pytest.mark.parametrize("text", ["", '{"log.dir": "/da', "[]", "null", "{}"])
def test_a_configuration_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="passed to the sender"):
        ProducerConfig.from_json(text)
