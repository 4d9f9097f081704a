#!/usr/bin/env python3
"""Compares shmaccum with other ways to send from Python to Kafka; see ``tools/bench.py --help``.

The implementation is in `tools.benchmark`; this is only the command.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # run as a script, or by -m: the project's root
    from tools.benchmark.main import main

    sys.exit(main())
