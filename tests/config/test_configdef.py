"""What every set of settings does: parse, refuse, and stay as it is."""

import pickle

import pytest

from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ConfigError

LOG = {"transport": "log", "log.dir": "/data/out"}


def test_cannot_be_changed() -> None:
    given: dict[str, object] = LOG | {"client.id": "a", "linger.ms": "20"}
    config = ProducerConfig.parse(given)

    given |= {"client.id": "b"}
    config.as_dict()["client.id"] = "b"
    for name, value in (("client_id", "b"), ("new", "b"), ("explicit", frozenset())):
        with pytest.raises(AttributeError):
            setattr(config, name, value)
    assert config.client_id == config["client.id"] == config.as_dict()["client.id"] == "a"
    assert config.linger_ms == 20
    assert config.explicit == set(given)


def test_survives_pickling_and_shows_no_password() -> None:
    config = ProducerConfig.parse(LOG | {"linger.ms": 5, "retries": 7, "sasl.password": "secret"})

    assert repr(config) == (
        "ProducerConfig({'retries': 7, 'sasl.password': [hidden], 'log.dir': '/data/out', 'transport': 'log'})"
    )
    assert "secret" not in str(config.as_dict())
    copy = pickle.loads(pickle.dumps(config))
    assert copy.as_dict() == config.as_dict()
    assert copy.explicit == config.explicit
    assert copy.sasl_password == Password("secret")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"linger.msec": 1}, ["linger.msec: no such setting; did you mean linger.ms?"]),
        ({"linger_ms": 1}, ["linger_ms: no such setting; did you mean linger.ms?"]),
        ({"LINGER.MS": 1}, ["LINGER.MS: no such setting; did you mean linger.ms?"]),
        ({"xyz": 1}, ["xyz: no such setting; docs/configuration.md lists all settings"]),
        ({"linger.ms": "often"}, ["linger.ms = 'often': expected a whole number of at most 64 bits"]),
        ({"linger.ms": -1}, ["linger.ms = -1: must be at least 0"]),
        ({"sasl.password": ["secret"]}, ["sasl.password = [hidden]: expected text (str), not list"]),
        (
            {"linger.ms": -1, "sasl.passwort": "a", "client.id": 1},
            [
                "3 problems in the configuration:",
                "- linger.ms = -1: must be at least 0",
                "- sasl.passwort: no such setting; did you mean sasl.password?",
                "- client.id = 1: expected text (str), not int",
            ],
        ),
        (
            {"batch.max.bytes": 9999999, "log.dir": ""},
            [
                "2 problems in the configuration:",
                "- log.dir is missing: transport log needs a directory to write to",
                "- batch.max.bytes = 9999999: must be at most max.request.size, which is 1048576; a batch of that size "
                "would be refused",
            ],
        ),
    ],
)
def test_all_that_is_wrong_is_said_at_once(given: dict[str, object], said: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        ProducerConfig.parse(LOG | given)
    assert str(refused.value).splitlines() == said
