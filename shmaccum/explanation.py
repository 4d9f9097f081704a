"""Why there is no metadata of a topic, in words.

The sender knows best, but the slab has room for an error's code only. What can be said of a code without the sender
is said here: what it means, and the settings to look at first.
"""

from __future__ import annotations

from typing import Final

from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    IllegalSaslStateError,
    KafkaError,
    NetworkError,
    SaslAuthenticationError,
    SslAuthenticationError,
    UnsupportedSaslMechanismError,
)

_NO_BROKER: Final = "no broker can be reached, or none speaks as we do"

_SETTINGS_TO_LOOK_AT: Final[dict[type[KafkaError], tuple[str, ...]]] = {
    NetworkError: ("bootstrap.servers", "security.protocol"),
    SslAuthenticationError: ("security.protocol", "ssl.truststore.location", "ssl.keystore.location"),
    SaslAuthenticationError: ("sasl.mechanism", "sasl.username"),
    UnsupportedSaslMechanismError: ("sasl.mechanism",),
    IllegalSaslStateError: ("security.protocol",),
}


def explain(error: type[KafkaError], config: ProducerConfig) -> str:
    """Return what an error means that the cluster's metadata could not be had for.

    Args:
        error: as the sender stored it.
        config: the settings of the producer that is told.
    """
    meaning = _NO_BROKER if error is NetworkError else error.meaning()
    names = _SETTINGS_TO_LOOK_AT.get(error, ())
    if not names:
        return meaning
    settings = ", ".join(f"{name} = {_shown(config[name])!r}" for name in names)
    log = config.sender_log_file
    more = f"{log} has more" if log else "set sender.log.file to hear more"
    return f"{meaning} ({settings}); {more}"


def _shown(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value
