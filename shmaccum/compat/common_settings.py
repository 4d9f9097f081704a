"""What both clients' settings need: a certificate and a key in two files.

Kafka's ``ssl.keystore.location`` is one file with both, ``ssl.keystore.certificate.chain`` and ``ssl.keystore.key`` are
their texts. librdkafka and kafka-python name a file for each.
"""

from __future__ import annotations

from pathlib import Path

from shmaccum.errors import ConfigError


def keystore_settings(certificate: tuple[str, object] | None, key: tuple[str, object] | None) -> dict[str, object]:
    """Return Kafka's settings for the files of a certificate and of its key, each with the setting that names it.

    Without the latter, the key is in the certificate's file.

    Raises:
        ConfigError: a file cannot be read, or there is a key without a certificate.
    """
    if certificate is None:
        if key is not None:
            raise ConfigError(f"{key[0]} = {key[1]!r}: there is no certificate for this key; set that, too")
        return {}
    if key is None:
        return {"ssl.keystore.location": certificate[1]}
    return {"ssl.keystore.certificate.chain": _read(*certificate), "ssl.keystore.key": _read(*key)}


def _read(name: str, path: object) -> str:
    try:
        return Path(str(path)).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} = {path!r}: cannot be read as PEM: {error}") from error
