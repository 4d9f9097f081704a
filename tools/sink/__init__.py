"""A broker that only acknowledges, to measure clients alone and count what they send.

``python -m tools.sink [--partitions 4]`` prints its address and serves until its standard input ends. It is the only
broker of its cluster. It reads from Produce requests only what it must answer and count; the kernel discards records
without a copy. So it keeps up with any client. A process of its own serves each connection, so that many clients do not
wait for one interpreter.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.sink.server import Sink

__all__ = ["Sink", "running_sink"]

_ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def running_sink(partitions: int) -> Iterator[str]:
    """Run a sink as a program of its own; the block gets its address, as for ``bootstrap.servers``."""
    command = [sys.executable, "-m", "tools.sink", "--partitions", str(partitions)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
