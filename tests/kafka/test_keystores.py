"""Java's keystores, made by keytool: what is read is what openssl put in, and nothing damaged is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fixture_types import MonkeyPatch
from hypothesis import given
from hypothesis import strategies as st
from javastores import KEY, KINDS, STORE, Stores, settings_of

from shmaccum.config import ProducerConfig
from shmaccum.errors import ApiVersionError, ConfigError
from shmaccum.kafka.keystores import KeyStore, read_keystore
from shmaccum.kafka.tls import tls_context
from tools.kafka import Certificates


def read(path: Path, password: str | None = STORE) -> KeyStore:
    found = read_keystore(str(path), password)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", ["", *KINDS])
def test_each_type_makes_a_context(stores: Stores, kind: str, said: str) -> None:
    """``test_security.py`` shows that a broker takes it."""
    types = {"ssl.truststore.type": said, "ssl.keystore.type": said}
    config = ProducerConfig.parse({"bootstrap.servers": "a:1"} | settings_of(stores, kind) | types)
    context = tls_context(config)
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert read(stores[kind, "own"]).identity(KEY).count("BEGIN CERTIFICATE") == 2, "the chain"


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_password_is_said_and_not_shown(stores: Stores, kind: str) -> None:
    with pytest.raises(ValueError, match="wrong password of the store, or the file is damaged") as caught:
        read(stores[kind, "own"], "very secret")
    assert "very secret" not in str(caught.value)


def test_a_key_with_a_password_of_its_own(stores: Stores) -> None:
    store = read(stores["JKS", "own"], None)
    with pytest.raises(ValueError, match=r"wrong password of the key: set ssl\.key\.password"):
        store.identity(STORE)
    with pytest.raises(ValueError, match=r"set ssl\.keystore\.password or ssl\.key\.password"):
        store.identity(None)
    assert store.identity(KEY)


def test_a_jks_is_trusted_without_its_password(stores: Stores) -> None:
    """As by Java."""
    assert read(stores["JKS", "trust"], None).trusted


def test_pem_is_no_keystore(certificates: Certificates) -> None:
    assert read_keystore(str(certificates.ca), None) is None


def test_jceks_says_how_to_convert_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(bytes.fromhex("cececece") + bytes(40))
    with pytest.raises(ValueError, match="keytool -importkeystore -deststoretype PKCS12"):
        read_keystore(str(path), None)


@given(data=st.data())
def test_damage_is_an_error_and_no_other_key(data: st.DataObject, stores: Stores, tmp_path_factory: object) -> None:
    whole = stores["JKS", "own"].read_bytes()
    at = data.draw(st.integers(4, len(whole) - 1))
    damaged = data.draw(st.sampled_from([whole[:at], whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]]))
    path = stores["JKS", "own"].with_name("damaged")
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        read(path)
    try:
        identity = read(path, None).identity(KEY)
    except ValueError:
        return
    whose = "-----END PRIVATE KEY"
    assert identity.partition(whose)[0] == read(stores["JKS", "own"]).identity(KEY).partition(whose)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ssl.truststore.password": "hush hush"}, "ssl.truststore.location = .*: wrong password of the store"),
        ({"ssl.truststore.location": "{own}"}, "ssl.truststore.location = .*: it holds no trusted certificate"),
        ({"ssl.keystore.location": "{trust}"}, "ssl.keystore.location = .*: the store holds no private key"),
        ({"ssl.truststore.location": "{ca}", "ssl.truststore.type": "JKS"}, "the file is not JKS"),
        ({"ssl.truststore.location": "{ca}"}, "no other type has a store password"),
        ({"ssl.truststore.type": "PEM"}, r"ssl.truststore.password = \[hidden\]: a PEM file has no password"),
    ],
)
def test_what_cannot_be_used_is_named(
    stores: Stores, certificates: Certificates, changes: dict[str, str], message: str
) -> None:
    files = {"own": stores["JKS", "own"], "trust": stores["JKS", "trust"], "ca": certificates.ca}
    changed = {name: value.format_map(files) for name, value in changes.items()}
    settings = {"bootstrap.servers": "a:1"} | settings_of(stores, "JKS") | changed
    with pytest.raises(ConfigError, match=message) as caught:
        tls_context(ProducerConfig.parse(settings))
    assert "hush" not in str(caught.value)


def test_pkcs12_without_its_library(stores: Stores, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ApiVersionError, match=r"pip install 'shmaccum\[keystores\]'"):
        read(stores["PKCS12", "trust"])
