"""What a process pays before its first record: time to import a client and make a producer, and its private memory.

A slab with a sender is there, as it is for every process of a host but the first. Each round starts a new process for
each client, in turn. Run with ``python -m tools.bench_start``.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

import shmaccum
from shmaccum import Producer, ProducerConfig

_MEASURED: Final = """
import json, sys, time
def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty:"))
memory, began = private(), time.perf_counter()
{program}
took = time.perf_counter() - began
print(json.dumps([took * 1000, private() - memory]))
"""
_PROGRAMS: Final = {
    "shmaccum": "import shmaccum; producer = shmaccum.Producer(json.loads(sys.argv[1]))",
    "confluent-kafka": (
        "import confluent_kafka\n"
        "producer = confluent_kafka.Producer({'bootstrap.servers': 'localhost:1', 'log_level': 0})"
    ),
}
_PEER: Final = "confluent-kafka"


def main() -> None:
    """Measure, and print medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    found: defaultdict[str, list[list[float]]] = defaultdict(list)
    # As installed packages are: compiled.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compileall.compile_dir(Path(shmaccum.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as directory:
        settings = {"transport": "log", "log.dir": directory, "shmaccum.name": f"bench-start-{os.getpid()}"}
        with Producer(ProducerConfig.parse(settings)) as holder:
            holder.send("t", b"1").get(30)
            for _ in range(rounds):
                for name, program in _PROGRAMS.items():
                    command = [sys.executable, "-c", _MEASURED.format(program=program), json.dumps(settings)]
                    done = subprocess.run(command, capture_output=True, check=True, env=environment)
                    found[name].append(json.loads(done.stdout))
    print(f"{'':18}{'ms':>8}{'KiB':>9}   ({rounds} rounds)")
    medians = {name: [median(column) for column in zip(*rows, strict=True)] for name, rows in found.items()}
    for name, (took_ms, memory) in medians.items():
        print(f"{name:18}{took_ms:8.1f}{memory:9.0f}")
    ours, theirs = medians["shmaccum"], medians[_PEER]
    print(f"{'ratio':18}{ours[0] / theirs[0]:8.2f}{ours[1] / theirs[1]:9.2f}")


if __name__ == "__main__":
    main()
