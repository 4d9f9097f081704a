"""The command line: start, stop, and what it says where something is missing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from brokers import consume_values, produce
from runs import run_python

from tools.kafka.running import Running

PROGRAM = """
import sys
from pathlib import Path
from tools.kafka import __main__
__main__.DIRECTORY = Path(sys.argv.pop(1))
sys.exit(__main__.main())
"""


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with a directory of the test's own, so that no cluster of the user's is touched."""
    return run_python("-c", PROGRAM, directory, *arguments, env=os.environ | environment)


def settings(said: str) -> dict[str, str]:
    """Return the settings among what was said."""
    lines = (line.strip() for line in said.splitlines() if line.startswith("    ") and "#" not in line)
    return dict(line.split("=", 1) for line in lines)


def broker(directory: Path) -> Running:
    ((pid, start_time),) = json.loads((directory / "cluster.json").read_text())["brokers"]
    return Running(pid, start_time)


def test_from_start_to_stop(apache_kafka: None, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    started = run(directory, "start", "--sasl")
    try:
        assert (started.returncode, started.stderr) == (0, "")
        said = settings(started.stdout)
        assert said["security.protocol"] == "SASL_PLAINTEXT"
        assert said["sasl.jaas.config"].endswith('username="admin" password="admin-secret";')
        client = {
            "bootstrap.servers": said["bootstrap.servers"],
            "security.protocol": said["security.protocol"],
            "sasl.mechanism": said["sasl.mechanism"],
            "sasl.username": "admin",
            "sasl.password": "admin-secret",
        }
        produce(client, "whatever", [b"value"])  # a topic is made when it is written to
        assert consume_values(client, "whatever") == {0: [b"value"]}

        again = run(directory, "start")
        assert again.returncode == 1
        assert again.stderr == f"a cluster is running, at {said['bootstrap.servers']}: stop it first\n"

        broker(directory).kill()
        assert run(directory, "start", "--tls").returncode == 0, "one that is dead is no obstacle"
        alive = broker(directory)
        assert alive.is_alive()
    finally:
        stopped = run(directory, "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert not alive.is_alive()
    assert not directory.exists()


def test_nothing_is_running(tmp_path: Path) -> None:
    stopped = run(tmp_path / "run", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "nothing is running\n")


def test_without_java_it_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "start", PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Apache Kafka needs a Java runtime of version 17 or later, but found none; install")
