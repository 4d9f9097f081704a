"""Kafka's own producer, which does what lines of text say: see ``ProduceRecords.java``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import PATIENCE_S

from tools.kafka.jvm import java_command

PROGRAM = Path(__file__).with_name("ProduceRecords.java")

Do = Callable[[Iterable[str]], list[tuple[int, int]]]


def producer_line(settings: dict[str, object]) -> str:
    return "\t".join(["producer", *(f"{name}={value}" for name, value in settings.items())])


@contextmanager
def java_producer() -> Iterator[Do]:
    """Run Kafka's producer; yield a function that has it do what lines say, and then flush.

    The function returns (partition, offset) of each record.
    """
    with subprocess.Popen(java_command(str(PROGRAM)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as java:
        assert java.stdin is not None
        assert java.stdout is not None
        stdin, stdout = java.stdin, java.stdout

        def do(lines: Iterable[str]) -> list[tuple[int, int]]:
            stdin.write("\n".join([*lines, "answer", ""]))
            stdin.flush()
            found = []
            for line in stdout:
                if line == "\n":
                    return found
                partition, offset = line.split()
                found.append((int(partition), int(offset)))
            raise AssertionError("Java has ended; its standard error says why")

        try:
            yield do
            stdin.close()
            assert java.wait(PATIENCE_S) == 0, "its standard error says why"
        finally:
            java.kill()  # if it still waits for a broker


def run_java(lines: Iterable[str]) -> list[tuple[int, int]]:
    """Have Kafka's producer do what the lines say, and return (partition, offset) of each record."""
    with java_producer() as do:
        return do(lines)
