"""Creates an authority and certificates for a cluster on loopback with ``openssl``."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tools.kafka.errors import KafkaMissingError, KafkaToolError

_DAY: Final = timedelta(days=1)

_AUTHORITY: Final = Path(__file__).with_name("openssl.cnf")


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate for 127.0.0.1 and localhost, and its key without a password; good for servers and clients.

    Attributes:
        certificate: PEM.
        key: PEM, PKCS #8.
        pem: both in one file, as Kafka's key stores of type PEM have it.
    """

    certificate: Path
    key: Path
    pem: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """An authority's certificate (PEM), and identities that it has signed; ``expired`` was good until yesterday."""

    ca: Path
    broker: Identity
    client: Identity
    expired: Identity


def make_certificates(directory: Path) -> Certificates:
    """Make a new authority and its identities in a directory, which is made too."""
    if shutil.which("openssl") is None:
        raise KafkaMissingError(
            "openssl makes the certificates, but there is none; install it: apt-get install openssl"
        )
    directory.mkdir(parents=True)
    config = directory / "openssl.cnf"
    config.write_text(_AUTHORITY.read_text().replace("{directory}", str(directory)))
    (directory / "issued").touch()
    ca = directory / "ca.pem"
    _openssl("req", "-x509", "-days", "3650", *_new_key(directory / "ca.key", "authority", config), "-out", str(ca))
    now = datetime.now(UTC)
    return Certificates(
        ca=ca,
        broker=_issue(directory, "broker", now - _DAY, now + 3650 * _DAY),
        client=_issue(directory, "client", now - _DAY, now + 3650 * _DAY),
        expired=_issue(directory, "expired", now - 2 * _DAY, now - _DAY),
    )


def _issue(directory: Path, name: str, begin: datetime, end: datetime) -> Identity:
    config, request = directory / "openssl.cnf", directory / f"{name}.csr"
    identity = Identity(directory / f"{name}.crt", directory / f"{name}.key", directory / f"{name}.pem")
    _openssl("req", "-new", *_new_key(identity.key, name, config), "-out", str(request))
    times = ("-startdate", f"{begin:%Y%m%d%H%M%SZ}", "-enddate", f"{end:%Y%m%d%H%M%SZ}")
    files = ("-in", str(request), "-out", str(identity.certificate))
    _openssl("ca", "-batch", "-notext", "-config", str(config), *times, *files)
    identity.pem.write_bytes(identity.key.read_bytes() + identity.certificate.read_bytes())
    return identity


def _new_key(key: Path, name: str, config: Path) -> tuple[str, ...]:
    """Return the options that make a key without a password for this name."""
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    return (*kind, "-keyout", str(key), "-subj", f"/CN={name}", "-config", str(config))


def _openssl(*arguments: str) -> None:
    command = ["openssl", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KafkaToolError(f"{' '.join(command)} failed with status {done.returncode}: {done.stderr}")
