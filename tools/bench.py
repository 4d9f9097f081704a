#!/usr/bin/env python3
"""shmaccum beside other ways to send from Python to Kafka, in one run: ``tools/bench.py --help`` says it all.

The parts are in `tools.benchmark`; this is only the command's name.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # run as a script, or by -m: the project's root
    from tools.benchmark.main import main

    sys.exit(main())
