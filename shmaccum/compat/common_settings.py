"""What both clients' settings need: addresses without a port, and a certificate and a key in two files.

Kafka's ``ssl.keystore.location`` is one file with both, ``ssl.keystore.certificate.chain`` and ``ssl.keystore.key`` are
their texts. librdkafka and kafka-python name a file for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shmaccum.errors import ConfigError

_PORT: Final = 9092
_WITH_PORT: Final = re.compile(r"[^:]*:[^:]*|\[.*\]:.*")
"""An address with more colons and no brackets is one of IPv6, without a port."""
_PROTOCOL: Final = re.compile(r"^[A-Za-z_]+://")


def servers(given: object) -> object:
    """Return ``bootstrap.servers`` as Kafka wants it, each address with a port.

    Args:
        given: a text or a list of addresses. The default port is 9092. librdkafka ignores a protocol before an address,
            and an empty address.
    """
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        return given  # refused as what it is
    stripped = [_PROTOCOL.sub("", part.strip()) for part in parts]
    return ",".join(map(_with_port, filter(None, stripped)))


def _with_port(address: str) -> str:
    if _WITH_PORT.fullmatch(address):
        return address
    return f"[{address}]:{_PORT}" if ":" in address and not address.startswith("[") else f"{address}:{_PORT}"


def keystore_settings(given: Mapping[str, object], certificate: str, key: str) -> dict[str, object]:
    """Return Kafka's settings for the files that two of the given ones name; the second one can be in the first.

    Raises ConfigError: a file cannot be read, or there is a key without a certificate.
    """
    if given.get(certificate) is None:
        if given.get(key) is not None:
            raise ConfigError(f"{key} = {given[key]!r}: there is no certificate for this key; set that, too")
        return {}
    if given.get(key) is None:
        return {"ssl.keystore.location": given[certificate]}
    chain, own = _read(certificate, given[certificate]), _read(key, given[key])
    return {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": own}


def _read(name: str, path: object) -> str:
    try:
        return Path(str(path)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} = {path!r}: cannot be read as PEM: {error}") from error
