"""Kafka's own producer, which does what lines of text say: see ``ProduceRecords.java``."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tools.kafka.jvm import java_command

PROGRAM = Path(__file__).with_name("ProduceRecords.java")


def producer_line(settings: dict[str, object]) -> str:
    """Return the line that makes a producer."""
    return "\t".join(["producer", *(f"{name}={value}" for name, value in settings.items())])


def run_java(lines: Iterable[str]) -> list[tuple[int, int]]:
    """Have Kafka's producer do what the lines say, and return (partition, offset) of each record."""
    done = subprocess.run(
        java_command(str(PROGRAM)), input="\n".join(lines), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return [(int(partition), int(offset)) for partition, offset in map(str.split, done.stdout.splitlines())]
