"""Keystores of Java's, made by keytool from the certificates of the tests."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.kafka import Certificates

STORE, KEY = "store-pass", "key-pass"
"""The passwords of the stores, and of the key in the JKS; that in PKCS#12 has the store's."""
KINDS = ["JKS", "PKCS12"]

Stores = Mapping[tuple[str, str], Path]
"""By kind, and "trust" or "own"."""


def make_stores(certificates: Certificates, directory: Path) -> Stores:
    client, made = certificates.client, {}
    plain = directory / "client.p12"
    _run("openssl", "pkcs12", "-export", "-in", client.certificate, "-inkey", client.key, "-name", "client",
         "-certfile", certificates.ca, "-out", plain, "-passout", "pass:between")  # fmt: skip
    for kind in KINDS:
        trust, own = directory / f"trust.{kind}", directory / f"own.{kind}"
        _run("keytool", "-importcert", "-noprompt", "-file", certificates.ca, "-alias", "ca", "-keystore", trust,
             "-storetype", kind, "-storepass", STORE)  # fmt: skip
        _run("keytool", "-importkeystore", "-noprompt", "-srckeystore", plain, "-srcstorepass", "between",
             "-srcalias", "client", "-destkeystore", own, "-deststoretype", kind, "-deststorepass", STORE,
             *(["-destkeypass", KEY] if kind == "JKS" else []))  # fmt: skip
        made |= {(kind, "trust"): trust, (kind, "own"): own}
    return made


def settings_of(stores: Stores, kind: str) -> dict[str, object]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": stores[kind, "trust"],
        "ssl.truststore.password": STORE,
        "ssl.keystore.location": stores[kind, "own"],
        "ssl.keystore.password": STORE,
    } | ({"ssl.key.password": KEY} if kind == "JKS" else {})


def _run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
