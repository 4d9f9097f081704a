"""What both clients' settings need: a certificate and a key in two files.

Kafka's ``ssl.keystore.location`` is one file with both, ``ssl.keystore.certificate.chain`` and ``ssl.keystore.key`` are
their texts. librdkafka and kafka-python name a file for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shmaccum.errors import ConfigError


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
        return Path(str(path)).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} = {path!r}: cannot be read as PEM: {error}") from error
