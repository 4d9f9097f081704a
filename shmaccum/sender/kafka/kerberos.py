"""The SASL mechanism GSSAPI (RFC 4752): a login by Kerberos, with tickets by a keytab or from a credential cache.

Every method can wait for a key distribution center (KDC), so each runs as a background call.

By a keytab, the library gets the first ticket (TGT) itself, into a cache in this process's memory. All logins of the
process share the cache. From half of the ticket's lifetime on, a login gets a new one; if that fails, it goes on with
the old one until that has expired. After a refresh that failed, the library tries again after 30 s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from shmaccum.errors import SaslAuthenticationError
from shmaccum.shm.incidents import printable

_NO_LAYER: Final = 1
"""Of the protections that RFC 4752 has: none behind the login. Kafka has no other; TLS is what protects."""
_LAYERS_SIZE: Final = 4
"""Bytes in which the broker says which protections it has, and how large a message can be."""
_KEYTAB_MAGIC: Final = 5


def check_keytab(path: str) -> None:
    """Read the beginning of a keytab.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no keytab.
    """
    with open(path, "rb") as file:
        beginning = file.read(2)
    if len(beginning) < 2 or beginning[0] != _KEYTAB_MAGIC:
        raise ValueError("it is no keytab")


class Kerberos:
    """One login.

    Args:
        host: the broker's name.
        service_name: ``sasl.kerberos.service.name``.
        principal: that we are; empty for that of the credential cache.
        keytab: path of the keytab with its keys; empty for the credential cache.

    Raises:
        SaslAuthenticationError: there is no ticket; says why.
    """

    def __init__(self, host: str, service_name: str, principal: str = "", keytab: str = "") -> None:
        import gssapi  # of the thread's, since to load it takes long

        if keytab:
            self._who = f"{principal} by sasl.kerberos.keytab {keytab!r}"
        else:
            self._who = f"{principal or 'the user'} by the credential cache"
        self._with_whom = f"{service_name}@{host}"
        self._has_agreed = False
        self._is_done = False
        with self._explained(gssapi):
            credentials = _credentials(gssapi, principal, keytab) if principal else None
            target = gssapi.Name(self._with_whom, gssapi.NameType.hostbased_service)
            self._context = gssapi.SecurityContext(
                name=target.canonicalize(gssapi.MechType.kerberos),
                creds=credentials,
                mech=gssapi.MechType.kerberos,
                flags=gssapi.RequirementFlag.mutual_authentication,  # the broker proves who it is
                usage="initiate",
            )
            self._next = self._context.step() or b""

    def auth_bytes(self) -> bytes:
        """See `Mechanism`."""
        return self._next

    def receive(self, auth_bytes: bytes) -> None:
        """See `Mechanism`.

        Raises:
            SaslAuthenticationError: the broker is not who it says it is, or demands what we do not have.
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

    def is_done(self) -> bool:
        """See `Mechanism`."""
        return self._is_done

    def is_authenticated(self) -> bool:
        """See `Mechanism`."""
        return self._is_done

    def _agree(self, layers: bytes) -> bytes:
        """Return the answer to which protections the broker has: none, by the name that we have, as Java's."""
        if len(layers) != _LAYERS_SIZE or not layers[0] & _NO_LAYER:
            raise SaslAuthenticationError(f"{self._with_whom} demands a protection by Kerberos, which Kafka has not")
        # Without a protection there is no size of messages (RFC 4752, 3.1).
        answer = bytes([_NO_LAYER, 0, 0, 0]) + str(self._context.initiator_name).encode()
        message: bytes = self._context.wrap(answer, False).message
        return message

    @contextlib.contextmanager
    def _explained(self, gssapi: Any) -> Iterator[None]:
        """Turn the library's errors into one that says who could not log in where, and why."""
        try:
            yield
        except gssapi.exceptions.GSSError as error:
            # The major status is most often "unspecified, see the minor one".
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
    # Only a server's credentials say what a keytab lacks. Without them the error is "No credentials cache found".
    gssapi.Credentials(name=name, usage="accept", store={"keytab": keytab})
    # Not the user's own cache: tickets got by a keytab must not replace what is there.
    store = {"client_keytab": keytab, "ccache": f"MEMORY:{principal} by {keytab}"}
    return gssapi.Credentials(name=name, usage="initiate", store=store)
