"""Parses the brokers' hosts and ports in ``bootstrap.servers``."""

from __future__ import annotations

import re
from typing import Final

from shmaccum.config.valuetypes import STRING, ValueType, list_of

_ADDRESS: Final = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.%]+)\]|(?P<name>[0-9a-zA-Z._-]+)):(?P<port>[0-9]{1,5})")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; the host in lower case, an IPv6 address without its brackets.

    Raises:
        ValueError: it is not of that form.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ValueError(f"expected host:port, with a port from 1 to 65535, not {address!r}")
    return (match["ipv6"] or match["name"]).lower(), int(match["port"])


def _parse_addresses(value: object) -> tuple[str, ...]:
    addresses = []
    for address in _TEXTS.parse(value):
        host, port = split_address(address)
        addresses.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return tuple(sorted(set(addresses)))


_TEXTS: Final = list_of(STRING)

ADDRESSES: Final = ValueType("list", _parse_addresses)
"""``host:port`` texts for `split_address`: sorted and without duplicates, so that equal sets are equal values."""
