"""Programs with flags of Python's, or without kafka-python: each sends to Apache Kafka, its sender serves others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from brokers import consume_values
from producers import sender_pid, wait_until_gone

from shmaccum import Producer
from tools.kafka import KafkaCluster

SEND = """
import json, sys
from shmaccum import Producer

settings, topic = json.loads(sys.argv[1])
with Producer(settings) as producer:
    print(producer.send(topic, b"value", partition=0).get(60).offset, flush=True)
    sys.stdin.read()
"""
TRANSACT = """
import json, sys
from shmaccum import Producer

settings, topic = json.loads(sys.argv[1])
with Producer(settings) as producer:
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"value", partition=0)
    producer.commit_transaction()
"""
FLAGS = (("-O",), ("-OO",), ("-W", "error"), ("-I",), ("-E",), ("-s",), ("-P",), ("-B",), ("-b",), ("-X", "dev"))


def settings_of(kafka: KafkaCluster, slab_name: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "shmaccum.name": slab_name,
        "sender.idle.ms": 100,
        "delivery.timeout.ms": 20_000,
        "request.timeout.ms": 10_000,
        "max.block.ms": 20_000,
    } | {key.replace("_", "."): value for key, value in more.items()}


def run(*arguments: object, **variables: str) -> str:
    """Run Python with arguments; return its output."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_holds(kafka: KafkaCluster, topic: str, count: int, **settings: object) -> None:
    (found,) = consume_values({"bootstrap.servers": kafka.bootstrap_servers, **settings}, topic).values()
    assert found == [b"value"] * count


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_a_program_with_a_flag_sends(kafka: KafkaCluster, slab_name: str, topic: str, flags: tuple[str, ...]) -> None:
    kafka.admin.create_topic(topic)
    assert run(*flags, "-c", SEND, json.dumps([settings_of(kafka, slab_name), topic])) == "0\n"
    wait_until_gone(slab_name)


@pytest.mark.parametrize(
    ("variable", "value"), [("PYTHONOPTIMIZE", "2"), ("PYTHONWARNINGS", "error"), ("PYTHONDEVMODE", "1")]
)
def test_a_program_with_a_variable_sends(
    kafka: KafkaCluster, slab_name: str, topic: str, variable: str, value: str
) -> None:
    kafka.admin.create_topic(topic)
    assert run("-c", SEND, json.dumps([settings_of(kafka, slab_name), topic]), **{variable: value}) == "0\n"
    wait_until_gone(slab_name)


@pytest.mark.parametrize("flags", [("-O",), ("-OO",), ("-W", "error")], ids=" ".join)
def test_a_program_with_a_flag_commits_a_transaction(
    kafka: KafkaCluster, slab_name: str, topic: str, flags: tuple[str, ...]
) -> None:
    kafka.admin.create_topic(topic)
    run(*flags, "-c", TRANSACT, json.dumps([settings_of(kafka, slab_name, transactional_id=topic), topic]))
    wait_until_gone(slab_name)
    assert_holds(kafka, topic, 1, **{"isolation.level": "read_committed"})


@pytest.mark.parametrize("flags", [("-O",), ("-W", "error")], ids=" ".join)
def test_the_command_line_with_a_flag_asks_brokers(
    kafka: KafkaCluster, slab_name: str, topic: str, flags: tuple[str, ...]
) -> None:
    with Producer(settings_of(kafka, slab_name, transactional_id=topic)) as producer:
        producer.init_transactions()
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"
    assert topic in run(*flags, "-m", "shmaccum", "transactions", "list", "-X", servers)
    wait_until_gone(slab_name)


def wait_for_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline()


@pytest.mark.parametrize("flags", [("-OO",), ("-W", "error")], ids=" ".join)
def test_a_sender_started_with_a_flag_serves_other_programs(
    kafka: KafkaCluster, slab_name: str, topic: str, flags: tuple[str, ...]
) -> None:
    kafka.admin.create_topic(topic)
    settings = settings_of(kafka, slab_name, sender_idle_ms=5_000)
    with subprocess.Popen(
        [sys.executable, *flags, "-c", SEND, json.dumps([settings, topic])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert wait_for_line(program) == "0\n"
        with Producer(settings) as producer:
            command: Any = Path(f"/proc/{sender_pid(producer)}/cmdline").read_text().split("\0")
            assert not {"-O", "-OO", "-Werror"} & set(command)
            assert producer.send(topic, b"value", partition=0).get(60).offset == 1
        program.communicate("", timeout=60)
    wait_until_gone(slab_name)
    assert_holds(kafka, topic, 2)


def test_a_program_without_kafka_python_commits_a_transaction(
    kafka: KafkaCluster, slab_name: str, topic: str, tmp_path: Path
) -> None:
    """Nor has its sender any."""
    (tmp_path / "kafka.py").write_text("raise ImportError('there is no kafka-python')\n")
    kafka.admin.create_topic(topic)
    settings = settings_of(kafka, slab_name, transactional_id=topic)
    run("-c", TRANSACT, json.dumps([settings, topic]), PYTHONPATH=str(tmp_path))
    wait_until_gone(slab_name)
    assert_holds(kafka, topic, 1, **{"isolation.level": "read_committed"})
