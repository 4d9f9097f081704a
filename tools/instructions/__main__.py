"""``python -m tools.instructions``: the counts, beside those on record."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import tools.instructions
from tools.instructions.counter import Counter
from tools.instructions.operations import OPERATIONS
from tools.support.arguments import command_line

RECORD: Final = Path(__file__).with_name("counts.json")
CALLS: Final = 5
"""That are counted: each instruction takes ten microseconds then."""
WARMUP: Final = 200
MOST: Final = 1.05
"""More than that part of what is on record is too much."""


def main(arguments: Sequence[str] | None = None) -> int:
    status = "Exit status: 1 if a count is more than 5 % above the one on record, 2 if nothing can be counted."
    parser = command_line("instructions", tools.instructions.__doc__, status)
    parser.add_argument("--operation", choices=OPERATIONS, action="append", metavar="NAME", help="only this one")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}, which later runs compare with")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = options.operation or list(OPERATIONS)
    if options.child is not None:
        print(_least(names[0], options.child))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        try:
            Counter(Path(directory))  # compiles it once
        except NotImplementedError as error:
            print(f"nothing can be counted: {error}", file=sys.stderr)
            return 2
        with ThreadPoolExecutor(os.cpu_count()) as at_once:
            counts = dict(zip(names, at_once.map(partial(_in_child, directory), names), strict=True))
    return compare(counts, record=options.record)


def _in_child(directory: str, name: str) -> int:
    """Count an operation in a process of its own, with a fixed seed of hashes."""
    command = [sys.executable, "-m", "tools.instructions", "--operation", name, "--child", directory]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    return int(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def _least(name: str, directory: Path) -> int:
    counter = Counter(directory)
    calls = OPERATIONS[name]()
    for call in islice(calls, WARMUP):
        call()
    gc.collect()
    gc.disable()
    counts = [counter.count(call) for call in islice(calls, CALLS)]
    calls.close()
    return min(counts)  # on a busy machine, calls take looks at the clock and the ring besides


def build() -> str:
    """Return what counts depend on: Python, the processor, and the compiler of the core."""
    compiler = Path((sysconfig.get_config_var("CC") or "cc").split()[0]).name
    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    return f"{python}, {platform.machine()}, {compiler if shutil.which(compiler) else 'zig'}"


def compare(counts: dict[str, int], *, record: bool) -> int:
    """Print counts beside those on record, or put them there; return the exit status."""
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    known = recorded.get(build(), {})
    print(f"{'operation':24} {'instructions':>12} {'on record':>12}  ratio")
    too_many = []
    for name, count in counts.items():
        before = known.get(name)
        print(f"{name:24} {count:12,} " + (f"{before:12,}  {count / before:.3f}" if before else f"{'-':>12}"))
        if before and count > before * MOST:
            too_many.append(name)
    if record:
        recorded[build()] = known | counts
        RECORD.write_text(json.dumps(recorded, indent=2) + "\n")
        return 0
    if not known:
        print(f"nothing to compare with: {RECORD.name} has {', '.join(recorded) or 'no build'}, this is {build()}")
    for name in too_many:
        print(f"{name} takes over 5 % more instructions than on record. If it has to: --record", file=sys.stderr)
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
