"""The SASL mechanism GSSAPI (RFC 4752): Kerberos, by keytab or credential cache.

Every method can wait for a key distribution center (KDC), so each runs as a background call.

With a keytab, the library gets the first ticket (TGT) into a cache in this process's memory, which all its logins
share. From half of the ticket's lifetime on, a login gets a new ticket. If that fails, it uses the old one until that
expires; the library retries a failed refresh after 30 s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from shmaccum.errors import SaslAuthenticationError, printable
from shmaccum.kafka.mechanisms import Mechanism

_NO_LAYER: Final = 1
"""The security layer of RFC 4752 that Kafka has: no protection after the login. TLS protects."""
_LAYERS_SIZE: Final = 4
"""Bytes of the broker's offer: its security layers, and the largest message."""
_KEYTAB_MAGIC: Final = 5


def check_keytab(path: str) -> None:
    """Check that a file can be read and begins as a keytab.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no keytab.
    """
    with open(path, "rb") as file:
        beginning = file.read(2)
    if len(beginning) < 2 or beginning[0] != _KEYTAB_MAGIC:
        raise ValueError("the file is no keytab")


class Kerberos(Mechanism):
    """One login: with a keytab, or with the credential cache, whose principal is the default.

    Raises SaslAuthenticationError: there is no ticket; says why.
    """

    def __init__(self, host: str, service_name: str, principal: str = "", keytab: str = "") -> None:
        import gssapi  # here, on the background thread, since loading it takes long

        if keytab:
            self._who = f"{principal} by sasl.kerberos.keytab {keytab!r}"
        else:
            self._who = f"{principal or 'the user'} by the credential cache"
        self._with_whom = f"{service_name}@{host}"
        self._has_agreed = False
        with self._explained(gssapi):
            credentials = _credentials(gssapi, principal, keytab) if principal else None
            target = gssapi.Name(self._with_whom, gssapi.NameType.hostbased_service)
            self._context = gssapi.SecurityContext(
                name=target.canonicalize(gssapi.MechType.kerberos),
                creds=credentials,
                mech=gssapi.MechType.kerberos,
                flags=gssapi.RequirementFlag.mutual_authentication,  # the broker proves its identity
                usage="initiate",
            )
            self._next = self._context.step() or b""

    def auth_bytes(self) -> bytes:
        """See `Mechanism`."""
        return self._next

    def receive(self, auth_bytes: bytes) -> None:
        """See `Mechanism`.

        Raises SaslAuthenticationError: the broker fails to prove its identity, or demands a security layer.
        """
        import gssapi

        if self._has_agreed:
            self._is_done = True
            return
        with self._explained(gssapi):
            if self._context.complete:
                self._next = self._agree(self._context.unwrap(auth_bytes).message)
                self._has_agreed = True
            else:
                self._next = self._context.step(auth_bytes) or b""

    def _agree(self, layers: bytes) -> bytes:
        """Return the answer to the broker's offer: no security layer, and our name, as Java's client sends it."""
        if len(layers) != _LAYERS_SIZE or not layers[0] & _NO_LAYER:
            raise SaslAuthenticationError(f"{self._with_whom} demands a security layer of GSSAPI: Kafka has none")
        # Without a security layer the message size is 0 (RFC 4752, 3.1).
        answer = bytes([_NO_LAYER, 0, 0, 0]) + str(self._context.initiator_name).encode()
        message: bytes = self._context.wrap(answer, False).message
        return message

    @contextlib.contextmanager
    def _explained(self, gssapi: Any) -> Iterator[None]:
        """Turn the library's errors into one that names principal, service and reason."""
        try:
            yield
        except gssapi.exceptions.GSSError as error:
            # The minor status first: the major one is most often "unspecified, see the minor one".
            told = error.get_all_statuses(error.min_code, False) if error.min_code else []
            told = told or error.get_all_statuses(error.maj_code, True)
            raise SaslAuthenticationError(
                printable(f"Kerberos login of {self._who} to {self._with_whom} failed: {'; '.join(told)}")
            ) from None


def _credentials(gssapi: Any, principal: str, keytab: str) -> Any:
    """Return the credentials of a principal, with a valid ticket if there is a keytab."""
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    if not keytab:
        return gssapi.Credentials(name=name, usage="initiate")
    # A server's credentials report what the keytab lacks; a client's only "No credentials cache found".
    gssapi.Credentials(name=name, usage="accept", store={"keytab": keytab})
    # A cache in memory: tickets of the keytab must not replace those in the user's own cache.
    store = {"client_keytab": keytab, "ccache": f"MEMORY:{principal} by {keytab}"}
    return gssapi.Credentials(name=name, usage="initiate", store=store)
