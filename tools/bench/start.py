"""What a process pays before its first record: time to import a client and make a producer, and its private memory.

A slab with a sender is there, as it is for every process of a host but the first. Each turn is a new process.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import shmaccum
from shmaccum import Producer, ProducerConfig
from tools.bench.harness import Figures, compared, print_table, take_turns

_MEASURED: Final = """
import json, sys, time
def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty:"))
memory, began = private(), time.perf_counter()
{program}
took = time.perf_counter() - began
print(json.dumps({{"ms": took * 1000, "KiB": private() - memory}}))
"""
_PROGRAMS: Final = {
    "shmaccum": "import shmaccum; producer = shmaccum.Producer(json.loads(sys.argv[1]))",
    "confluent-kafka": (
        "import confluent_kafka\n"
        "producer = confluent_kafka.Producer({'bootstrap.servers': 'localhost:1', 'log_level': 0})"
    ),
}


def measure(program: str, settings: dict[str, str]) -> Figures:
    """Run a program in a new interpreter."""
    # As installed packages are: compiled.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _MEASURED.format(program=program), json.dumps(settings)]
    figures: Figures = json.loads(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)
    return figures


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=9)


def run(options: argparse.Namespace) -> None:
    compileall.compile_dir(Path(shmaccum.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as directory:
        settings = {"transport": "log", "log.dir": directory, "shmaccum.name": f"bench-start-{os.getpid()}"}
        with Producer(ProducerConfig.parse(settings)) as holder:
            holder.send("t", b"1").get(30)
            contestants = {name: partial(measure, program, settings) for name, program in _PROGRAMS.items()}
            print_table("import and first Producer", compared(take_turns(contestants, options.rounds)))
