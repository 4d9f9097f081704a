"""Why there is no metadata of a topic, in words.

A topic's entry has room for an error's code only. What that means, and the settings to look at first, is said here,
with what the sender last met.
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
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.slab import Slab

_NO_BROKER: Final = "no broker can be reached, or none speaks as we do"

_SETTINGS_TO_LOOK_AT: Final[dict[type[KafkaError], tuple[str, ...]]] = {
    NetworkError: ("bootstrap.servers", "security.protocol"),
    SslAuthenticationError: ("security.protocol", "ssl.truststore.location", "ssl.keystore.location"),
    SaslAuthenticationError: ("sasl.mechanism", "sasl.username"),
    UnsupportedSaslMechanismError: ("sasl.mechanism",),
    IllegalSaslStateError: ("security.protocol",),
}
_SETTINGS_OF_KERBEROS: Final = ("sasl.mechanism", "sasl.kerberos.service.name", "sasl.kerberos.principal")


def explain(error: type[KafkaError], config: ProducerConfig, slab: Slab) -> str:
    """Return what an error means that the cluster's metadata could not be had for.

    Args:
        error: as the sender stored it.
        config: the settings of the producer that is told.
        slab: that it was stored in, with what the sender last met.
    """
    meaning = _NO_BROKER if error is NetworkError else error.meaning()
    names = _SETTINGS_TO_LOOK_AT.get(error, ())
    if error is SaslAuthenticationError and config.sasl_mechanism == "GSSAPI":
        names = _SETTINGS_OF_KERBEROS
    if not names:
        return meaning
    settings = ", ".join(f"{name} = {_shown(config[name])!r}" for name in names)
    return f"{meaning} ({settings}){slab.trouble()}; log of the sender: {slab.companion(Incidents).log()}"


def _shown(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value
