"""Hosts and ports."""

import pytest

from shmaccum.config import ProducerConfig
from shmaccum.config.addresses import ADDRESSES, split_address
from shmaccum.errors import ConfigError


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("broker-1.example.com:9092", "broker-1.example.com", 9092),
        ("LOCALHOST:1", "localhost", 1),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("[2001:DB8::1]:9092", "2001:db8::1", 9092),
    ],
)
def test_an_address(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)


def test_a_list_is_the_same_in_every_order_and_spelling() -> None:
    assert ADDRESSES.parse("b:2, A:1 ,[::1]:9092,a:1") == ("[::1]:9092", "a:1", "b:2")
    assert ADDRESSES.parse(["a:1", "b:2", "[::1]:9092"]) == ("[::1]:9092", "a:1", "b:2")
    assert ADDRESSES.parse("") == ()


@pytest.mark.parametrize(
    "wrong", ["a", "a:", ":1", "a:0", "a:65536", "a:b", "::1:9092", "a:1,,b:2", "http://a:1", "a b:1"]
)
def test_what_is_no_address(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers = .*: expected host:port, with a port from 1 to 65535"):
        ProducerConfig.parse({"bootstrap.servers": wrong})
