"""Tries a wheel as its users do: a new environment, `pip install`, and a program outside the source tree."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka import KafkaConsumer

from tools.kafka import KafkaCluster
from tools.wheels.building import Target, WheelError
from tools.wheels.environments import Environment, Installed
from tools.wheels.send import RECORDS

_PROGRAM: Final = Path(__file__).with_name("send.py")
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True)
class Trial:
    """What `pip install` did; the version of the CPython that ran, and its machine, which can be emulated."""

    installed: Installed
    version: str
    machine: str


@contextmanager
def any_topic(directory: Path) -> Iterator[KafkaCluster]:
    """Run a broker that creates each topic that is asked for."""
    with KafkaCluster(directory, overrides={"auto.create.topics.enable": "true"}) as cluster:
        yield cluster


def try_wheel(wheel: Path, target: Target, bootstrap_servers: str) -> Trial:
    """Install a wheel, send records to a broker with it, and read them back."""
    with tempfile.TemporaryDirectory(prefix="shmaccum-wheel-") as scratch:
        directory = Path(scratch)
        environment = Environment(target, directory)
        installed = environment.install(wheel)
        program = str(shutil.copy(_PROGRAM, directory))
        told = environment.run(str(environment.python), program, bootstrap_servers, str(target))
        consumer = KafkaConsumer(str(target), bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        found: set[bytes] = set()
        deadline = time.monotonic() + _PATIENCE_S
        while len(found) < RECORDS and time.monotonic() < deadline:
            found |= {each.value for records in consumer.poll(timeout_ms=500).values() for each in records}
        consumer.close()
        if found != {f"flight {number}".encode() for number in range(RECORDS)}:
            raise WheelError(f"{target}: {len(found)} of {RECORDS} records were found in the topic")
        where, machine, version = told.split()
        if not Path(where).is_relative_to(directory):
            raise WheelError(f"{target}: the program imported another shmaccum: {where}")
        return Trial(installed, version, machine)
