"""What values become, ConfigDef.parseType; and which are allowed, ConfigDef.Validator."""

import json
import os
from pathlib import Path

import pytest
from fixture_types import MonkeyPatch

from shmaccum.config import ProducerConfig
from shmaccum.config import valuetypes as vt
from shmaccum.errors import ConfigError


@pytest.mark.parametrize(
    ("value_type", "pairs"),
    [
        (vt.INT, [(5, 5), (" 5 ", 5), ("-1", -1), ("+7", 7), ("2147483647", 2**31 - 1), (-(2**31), -(2**31))]),
        (vt.LONG, [("9223372036854775807", vt.LONG_MAX), (-(2**63), -(2**63))]),
        (vt.BOOLEAN, [(" TRUE ", True), ("False", False), (True, True)]),
        (vt.STRING, [("  text ", "text")]),
        (vt.PASSWORD, [(each, vt.Password("secret")) for each in ("secret", vt.Password("secret"))]),
        (vt.LIST, [("a, b ,c", ("a", "b", "c")), (" ", ()), (["a", "b"], ("a", "b")), (("a",), ("a",))]),
        (vt.CLASS, [("json.dumps", json.dumps), (json.dumps, json.dumps)]),
        (vt.CLASS, [("json.decoder.JSONDecoder.decode", json.JSONDecoder.decode)]),
        (vt.list_of(vt.CLASS), [("json.dumps,json.loads", (json.dumps, json.loads)), (["json.dumps"], (json.dumps,))]),
        (vt.optional(vt.INT), [(None, None), ("3", 3)]),
    ],
)
def test_takes_a_value_or_text_for_it(value_type: vt.ValueType[object], pairs: list[tuple[object, object]]) -> None:
    for given_value, expected in pairs:
        parsed = value_type.parse(given_value)
        assert parsed == expected
        assert type(parsed) is type(expected)
        assert value_type.parse(parsed) == parsed


@pytest.mark.parametrize(
    ("value_type", "wrong"),
    [
        (vt.INT, [True, 5.0, None, "5.0", "1_000", "٣", "", 2**31, "-2147483649"]),
        (vt.LONG, [2**63, "-9223372036854775809"]),
        (vt.BOOLEAN, [1, "yes"]),
        (vt.STRING, [1, None, "\udce4"]),
        (vt.PASSWORD, [1, "\ud83d"]),
        (vt.PATH, [b"/tmp"]),
        (vt.LIST, [1, [1]]),
        (vt.CLASS, [1, "json", "json.no_such_function", "no_such_module.function", "not a name", None]),
    ],
)
def test_refuses_anything_else(value_type: vt.ValueType[object], wrong: list[object]) -> None:
    for each in wrong:
        with pytest.raises(ValueError, match=r"^expected "):
            value_type.parse(each)


def test_path_is_made_absolute(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert vt.PATH.parse("./a/../out") == os.fspath(tmp_path / "out")
    assert vt.PATH.parse(Path("out")) == os.fspath(tmp_path / "out")
    assert vt.PATH.parse(" out ") == os.fspath(tmp_path / "out")
    assert vt.PATH.parse("") == ""
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    assert vt.PATH.parse("/out") == "/out"
    with pytest.raises(ValueError, match="expected an absolute path, since the working directory does not exist"):
        vt.PATH.parse("out")
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("broker-1.example.com:9092", "broker-1.example.com", 9092),
        ("LOCALHOST:1", "localhost", 1),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("[2001:DB8::1]:9092", "2001:db8::1", 9092),
        ("[FE80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("[fe80::1%2]:9092", "fe80::1%2", 9092),
    ],
)
def test_an_address(address: str, host: str, port: int) -> None:
    assert vt.split_address(address) == (host, port)


def test_a_list_is_the_same_in_every_order_and_spelling() -> None:
    assert vt.ADDRESSES.parse("b:2, A:1 ,[::1]:9092,a:1") == ("[::1]:9092", "a:1", "b:2")
    assert vt.ADDRESSES.parse(["a:1", "b:2", "[::1]:9092"]) == ("[::1]:9092", "a:1", "b:2")
    assert vt.ADDRESSES.parse("") == ()


@pytest.mark.parametrize(
    "wrong", ["a", "a:", ":1", "a:0", "a:65536", "a:b", "::1:9092", "a:1,,b:2", "http://a:1", "a b:1"]
)
def test_invalid_addresses(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers = .*: expected host:port, with a port from 1 to 65535"):
        ProducerConfig.parse({"bootstrap.servers": wrong})
