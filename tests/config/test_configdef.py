"""The machinery, on a small configuration of its own."""

import pickle
from collections.abc import Mapping

import pytest

from shmaccum.config.configdef import Config, Importance, Scope, Setting
from shmaccum.config.valuetypes import INT, PASSWORD, STRING, Password, at_least, optional
from shmaccum.errors import ConfigError


class Base(Config, group="One"):
    __slots__ = ()
    poll_ms = Setting(INT, 5, Importance.HIGH, Scope.SLAB, at_least(1)).says("""
        How often
            to look.""")


def _poll_is_even(config: "Server") -> Mapping[str, object]:
    if config.poll_ms % 2 == 0:
        return {}
    if "poll.ms" in config.explicit:
        raise ConfigError("poll.ms is odd")
    return {"poll.ms": config.poll_ms + 1}


def _host_is_short(config: "Server") -> Mapping[str, object]:
    if len(config.host) > config.poll_ms:
        raise ConfigError("host is long")
    return {}


class Server(Base, group="Two"):
    __slots__ = ()
    rules = (_poll_is_even, _host_is_short)
    host = Setting(STRING, "", Importance.LOW, Scope.PRODUCER)
    sasl_password = Setting(PASSWORD, Password(""), Importance.LOW, Scope.SLAB)
    ssl_password = Setting(optional(PASSWORD), None, Importance.LOW, Scope.SLAB)
    fallback = Setting(optional(INT), None, Importance.LOW, Scope.SLAB)


def test_a_setting_is_a_rule_on_the_class_and_a_value_on_an_instance() -> None:
    config = Server.parse({"host": "a"})

    assert Server.host.name == "host"
    assert Server.sasl_password.name == "sasl.password"
    assert config.host == config["host"] == "a"
    assert config.explicit == {"host"}
    assert list(config.as_dict().values()) == [6, "a", Password(""), None, None]
    assert list(Server.settings) == ["poll.ms", "host", "sasl.password", "ssl.password", "fallback"]
    assert list(Base.settings) == ["poll.ms"]


def test_cannot_be_changed() -> None:
    given: dict[str, object] = {"host": "a"}
    config = Server.parse(given)

    given |= {"host": "b", "poll.ms": 8}
    with pytest.raises(AttributeError):
        config.host = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        config.new = "b"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        config.explicit = frozenset()  # type: ignore[misc]
    config.as_dict()["host"] = "b"
    assert (config.host, config.poll_ms, config.explicit) == ("a", 6, {"host"})


def test_survives_pickling_and_shows_no_password() -> None:
    config = Server.parse({"host": "a", "sasl.password": "secret"})

    assert repr(config) == "Server({'poll.ms': 6, 'host': 'a', 'sasl.password': [hidden]})"
    assert "secret" not in str(config.as_dict())
    copy = pickle.loads(pickle.dumps(config))
    assert copy.as_dict() == config.as_dict()
    assert copy.explicit == config.explicit
    assert copy.sasl_password.value == "secret"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("poll.msec", "did you mean poll.ms?"),
        ("poll_ms", "did you mean poll.ms?"),
        ("POLL.MS", "did you mean poll.ms?"),
        ("sasl.passwort", "did you mean sasl.password?"),
        ("bootstrap.servers", "docs/configuration.md"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Server.parse({name: 1})

    assert str(refused.value).startswith(f"{name}: no such setting; ")
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"poll.ms": "often"}, ["poll.ms = 'often': expected a whole number of at most 32 bits"]),
        ({"poll.ms": 0}, ["poll.ms = 0: must be at least 1"]),
        ({"sasl.password": ["secret"]}, ["sasl.password = [hidden]: expected text (str), not list"]),
        ({"ssl.password": ["secret"]}, ["ssl.password = [hidden]: expected text (str), not list"]),
        (
            {"poll.ms": 0, "hots": "a", "host": 1},
            [
                "3 problems in the configuration:",
                "- poll.ms = 0: must be at least 1",
                "- hots: no such setting; did you mean host?",
                "- host = 1: expected text (str), not int",
            ],
        ),
        (
            {"poll.ms": 3, "host": "long"},
            ["2 problems in the configuration:", "- poll.ms is odd", "- host is long"],
        ),
    ],
    ids=["type", "range", "password", "optional password", "several", "rules"],
)
def test_all_that_is_wrong_is_said_at_once(given: dict[str, object], said: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        Server.parse(given)

    assert str(refused.value).splitlines() == said


def test_rules_see_what_earlier_ones_changed() -> None:
    assert Server.parse({}).poll_ms == 6
    assert Server.parse({"host": "sixsix"}).poll_ms == 6
