"""Programs with flags of Python's, or without kafka-python: each sends to Apache Kafka, its sender serves others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from brokers import consume_values
from producers import sender_pid, wait_until_gone

from shmaccum import Producer
from tools.kafka import KafkaCluster

PROGRAM = """
import json, sys
from shmaccum import Producer

settings, transactional, topic = json.loads(sys.argv[1])
with Producer(settings) as producer:
    print(producer.send(topic, b"value", partition=0).get(60).offset, flush=True)
    sys.stdin.read()
with Producer(transactional) as producer:
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"value", partition=0)
    producer.commit_transaction()
"""
"""Sends; when its standard input ends, commits a transaction."""

CASES: dict[str, tuple[list[str], dict[str, str]]] = {
    "-OO -I -B": (["-OO", "-I", "-B"], {}),  # -I is -E, -P and -s
    "-b -X dev -W error": (["-b", "-X", "dev", "-W", "error"], {}),
    "variables": ([], {"PYTHONOPTIMIZE": "2", "PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"}),
    "no kafka-python": ([], {"PYTHONPATH": "."}),
}
"""Flags of the interpreter, and variables."""


def settings_of(kafka: KafkaCluster, slab_name: str, **more: str) -> dict[str, object]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "shmaccum.name": slab_name,
        "sender.idle.ms": 100,
        "delivery.timeout.ms": 20_000,
        "request.timeout.ms": 10_000,
        "max.block.ms": 20_000,
    } | more


@pytest.mark.parametrize("case", CASES)
def test_a_program_with_flags_sends_and_its_sender_serves_others(
    kafka: KafkaCluster, slab_name: str, topic: str, tmp_path: Path, case: str
) -> None:
    """It commits a transaction as well, and the command line with the same flags asks the brokers."""
    flags, variables = CASES[case]
    if "PYTHONPATH" in variables:
        (tmp_path / "kafka.py").write_text("raise ImportError('there is no kafka-python')\n")
        variables = {"PYTHONPATH": str(tmp_path)}
    kafka.admin.create_topic(topic)
    settings = settings_of(kafka, slab_name)
    transactional = settings_of(kafka, f"{slab_name}-t", **{"transactional.id": topic})
    with subprocess.Popen(
        [sys.executable, *flags, "-c", PROGRAM, json.dumps([settings, transactional, topic])],
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "0\n"
        with Producer(settings) as producer:
            command = Path(f"/proc/{sender_pid(producer)}/cmdline").read_text().split("\0")
            assert not {"-OO", "-Werror", "-b", "dev"} & set(command)
            assert producer.send(topic, b"value", partition=0).get(60).offset == 1
        program.communicate("", timeout=60)
        assert program.returncode == 0
    for name in (slab_name, f"{slab_name}-t"):
        wait_until_gone(name)
    found = consume_values({"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}, topic)
    assert found == {0: [b"value"] * 3}
    ask = ["-m", "shmaccum", "transactions", "list", "-X", f"bootstrap.servers={kafka.bootstrap_servers}"]
    assert topic in subprocess.check_output(
        [sys.executable, *flags, *ask], env=os.environ | variables, text=True, timeout=60
    )
