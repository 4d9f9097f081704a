"""Reads Java keystores for OpenSSL: JKS, and PKCS#12 by way of cryptography.

As Java does, it opens either form whatever type is set. A truststore holds trusted certificates. Of a keystore it takes
the first private key of the file with its certificate chain; Java would choose by what the broker accepts.

Source: ``sun.security.provider.JavaKeyStore`` and ``KeyProtector`` in OpenJDK.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shmaccum.errors import ApiVersionError

_JKS: Final = 0xFEEDFEED
_JCEKS: Final = 0xCECECECE
_SEQUENCE: Final = 0x30
_OCTET_STRING: Final = 0x04
_KEY_ENTRY: Final = 1
_TRUSTED_ENTRY: Final = 2
_SUN_KEY_PROTECTOR: Final = bytes.fromhex("060a2b060104012a02110101")
"""The object identifier 1.3.6.1.4.1.42.2.17.1.1, in DER."""
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
_WRONG_PASSWORD: Final = "wrong password of the store, or the file is damaged"


@dataclass(frozen=True, slots=True)
class KeyStore:
    """The contents of a keystore: certificates in PEM, or in DER those of the key."""

    trusted: str
    key: bytes = b""
    """The private key (PKCS#8, DER); empty for none."""
    is_protected: bool = False
    """Whether the key is still encrypted, as in a JKS."""
    chain: Sequence[bytes] = ()

    def identity(self, key_password: str | None) -> str:
        """Return the private key and its certificates, in PEM.

        Raises ValueError: there is no key, or the password is wrong.
        """
        if not self.key:
            raise ValueError("the store holds no private key")
        key = _unprotected(self.key, key_password) if self.is_protected else self.key
        own = f"-----BEGIN PRIVATE KEY-----\n{base64.encodebytes(key).decode()}-----END PRIVATE KEY-----\n"
        return own + "".join(map(ssl.DER_cert_to_PEM_cert, self.chain))


def read_keystore(path: str, password: str | None) -> KeyStore | None:
    """Read a Java keystore; return None if the file has neither form, so that it should be PEM.

    Without a password, a JKS is not checked for damage.

    Raises:
        OSError: the file cannot be read.
        ValueError: the store cannot be read; says why, without secrets.
        ApiVersionError: cryptography is needed and not installed.
    """
    data = Path(path).read_bytes()
    magic = int.from_bytes(data[:4], "big")
    if magic == _JCEKS:
        raise ValueError("the file is a JCEKS; convert it: keytool -importkeystore -deststoretype PKCS12")
    if magic == _JKS:
        return _read_jks(data, password)
    if data[:1] == bytes([_SEQUENCE]):
        return _read_pkcs12(data, password)
    return None


# --- JKS --------------------------------------------------------------------------------------------------


def _read_jks(data: bytes, password: str | None) -> KeyStore:
    if password is not None:
        digest = hashlib.sha1(_utf16(password) + _WHITENER + data[:-_DIGEST_BYTES]).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise ValueError(_WRONG_PASSWORD)
    trusted: list[bytes] = []
    keys: list[tuple[bytes, list[bytes]]] = []
    try:
        file = _Stream(data[4:])
        version, entries = file.number(), file.number()
        if version not in (1, 2):
            raise ValueError(f"the JKS has version {version}, not 1 or 2")
        for _ in range(entries):
            kind = file.number()
            file.string()  # the alias
            file.take(8)  # the date
            if kind == _TRUSTED_ENTRY:
                trusted.append(file.certificate(version))
            elif kind == _KEY_ENTRY:
                keys.append((file.block(), [file.certificate(version) for _ in range(file.number())]))
            else:
                raise ValueError(f"the JKS holds an entry of unknown kind {kind}")
    except EOFError:
        raise ValueError("the JKS is damaged: it ends within an entry") from None
    key, chain = keys[0] if keys else (b"", [])
    return KeyStore("".join(map(ssl.DER_cert_to_PEM_cert, trusted)), key, bool(key), chain)


def _unprotected(protected: bytes, password: str | None) -> bytes:
    """Decrypt a private key (PKCS#8, DER) that Sun's proprietary algorithm has encrypted."""
    if password is None:
        raise ValueError("the key has a password: set ssl.keystore.password or ssl.key.password")
    outer = _Der(protected).read(_SEQUENCE)
    algorithm = outer.read(_SEQUENCE)
    if not algorithm.rest().startswith(_SUN_KEY_PROTECTOR):
        raise ValueError("the key is not encrypted by the algorithm of JKS (1.3.6.1.4.1.42.2.17.1.1)")
    secret = outer.read(_OCTET_STRING).rest()
    salt, encrypted, check = secret[:_DIGEST_BYTES], secret[_DIGEST_BYTES:-_DIGEST_BYTES], secret[-_DIGEST_BYTES:]
    words, stream, block = _utf16(password), bytearray(), salt
    while len(stream) < len(encrypted):
        block = hashlib.sha1(words + block).digest()
        stream += block
    key = bytes(left ^ right for left, right in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(words + key).digest(), check):
        raise ValueError("wrong password of the key: set ssl.key.password")
    return key


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


class _Stream(io.BytesIO):
    """Reads the format of Java's ``DataOutputStream``; raises EOFError at the end."""

    def take(self, size: int) -> bytes:
        taken = self.read(size)
        if len(taken) < size:
            raise EOFError
        return taken

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size))

    def block(self) -> bytes:
        return self.take(self.number())

    def string(self) -> bytes:
        return self.take(self.number(2))

    def certificate(self, version: int) -> bytes:
        """Return a certificate (DER); in version 2 its type precedes it."""
        if version == 2 and self.string() != b"X.509":
            raise ValueError("the JKS holds a certificate that is not X.509")
        return self.block()


class _Der:
    """Reads elements of DER one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, tag: int) -> _Der:
        """Return the content of the next element, which must have this tag."""
        head = self._data[self._at : self._at + 2]
        if len(head) < 2 or head[0] != tag:
            raise ValueError("the key is damaged")
        self._at += 2
        size = head[1]
        if size >= 0x80:  # long form: the lower bits count the bytes of the length
            width = size & 0x7F
            size = int.from_bytes(self._data[self._at : self._at + width], "big")
            self._at += width
        content = self._data[self._at : self._at + size]
        if len(content) < size:
            raise ValueError("the key is damaged")
        self._at += size
        return _Der(content)

    def rest(self) -> bytes:
        """Return the unread bytes."""
        return self._data[self._at :]


# --- PKCS#12 ----------------------------------------------------------------------------------------------


def _read_pkcs12(data: bytes, password: str | None) -> KeyStore:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ApiVersionError(
            "a keystore in PKCS#12 needs the library cryptography: pip install 'shmaccum[keystores]'"
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except UnsupportedAlgorithm as error:
        raise ValueError(f"it has an algorithm that cryptography does not support: {error}") from None
    except ValueError:
        raise ValueError(_WRONG_PASSWORD if password is not None else "no password set for it, or damaged") from None
    others = [each.certificate.public_bytes(Encoding.DER) for each in store.additional_certs]
    trusted = "".join(map(ssl.DER_cert_to_PEM_cert, others))
    if store.key is None:
        return KeyStore(trusted)
    own = [store.cert.certificate.public_bytes(Encoding.DER)] if store.cert is not None else []
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return KeyStore(trusted, key, chain=[*own, *others])
