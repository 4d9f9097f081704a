"""``shmaccum doctor``: the way to the brokers, and what is shown of all findings."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_broker import FakeBroker
from fixture_types import Capture

from shmaccum.cli.doctor import Finding, Level, cluster_findings
from shmaccum.cli.main import main
from tools.kafka import KafkaCluster
from tools.support.messages import METADATA


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Return a port without a listener; it stays bound, so that no other process takes it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def findings(servers: str, timeout_s: float = 20, **settings: object) -> list[Finding]:
    return list(cluster_findings({"bootstrap.servers": servers, **settings}, timeout_s))


def test_a_cluster_in_order(kafka: KafkaCluster, capfd: Capture) -> None:
    main(["doctor", "-X", f"bootstrap.servers={kafka.bootstrap_servers}", "--json"])
    out, err = capfd.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert {"shmaccum", "memory", "limits", "RemoveIPC", "clock", "broker"} <= {row["subject"] for row in rows}
    assert all(row.keys() == {"level", "subject", "text", "advice"} for row in rows)
    (found,) = [row for row in rows if row["subject"] == "broker"]
    assert found["level"] == "ok"
    assert f"{kafka.bootstrap_servers} let us in and answered after" in found["text"]
    assert found["text"].endswith("1 in the cluster, transactions of version 2")
    assert err == ""


def test_a_broker_that_cannot_be_reached(closed_port: int, kafka: KafkaCluster) -> None:
    for servers, security, text, advice in (
        (f"127.0.0.1:{closed_port}", "PLAINTEXT", "Connection refused", "the firewall"),
        ("no-such-host.invalid:9092", "PLAINTEXT", "no-such-host.invalid", "check the name"),
        (kafka.bootstrap_servers, "SSL", "connection to broker", "check "),
    ):
        (found,) = findings(servers, **{"security.protocol": security})
        assert found.level == Level.PROBLEM
        assert text in found.text
        assert advice in found.advice


def test_a_broker_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (found,) = findings(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.3)
    assert found.level == Level.PROBLEM
    assert "KafkaTimeoutError" in found.text


def test_an_advertised_address_that_leads_nowhere(closed_port: int) -> None:
    """The most frequent mistake with containers: the bootstrap address works, the advertised one does not."""
    with FakeBroker() as broker:
        elsewhere = SimpleNamespace(port=closed_port)
        brokers = [(1, broker), (2, elsewhere)]
        broker.answers[METADATA] = lambda request: broker.metadata(request, names=[], brokers=brokers)
        ok, found = findings(broker.servers)
    assert ok.level == Level.OK
    assert found.level == Level.PROBLEM
    assert f"127.0.0.1:{closed_port} (advertised by broker 2): NetworkError" in found.text
    assert "advertised.listeners" in found.advice


def test_what_a_terminal_would_obey(closed_port: int, capfd: Capture) -> None:
    """A name from the cluster's metadata."""
    with FakeBroker() as broker:

        def metadata(request: object) -> object:
            answer = broker.metadata(request, names=[])  # type: ignore[arg-type]
            answer.brokers[0].host = "\x1b[31mred" + "x" * 30_000
            return answer

        broker.answers[METADATA] = metadata
        assert main(["doctor", "-X", f"bootstrap.servers={broker.servers}", "--timeout", "1"]) == 1
    out, err = capfd.readouterr()
    assert r"\x1b[31mred" in out
    assert "\x1b" not in out
    assert out.count("x") < 3000
    assert err == ""


def test_without_settings(capfd: Capture) -> None:
    main(["doctor"])
    out, _ = capfd.readouterr()
    assert "No broker was checked: give the producers' settings by --config or -X." in out
    assert " problem" in out.splitlines()[-1]


def test_a_log_directory(tmp_path: Path, capfd: Capture) -> None:
    directory = tmp_path / "log"
    for said in ("can be made", "is not a directory"):
        main(["doctor", "-X", "transport=log", "-X", f"log.dir={directory}"])
        assert f"{directory} {said}" in capfd.readouterr().out
        directory.touch()
