#!/usr/bin/env python3
"""Random kills under load, and what became of every record: ``tools/stress.py --help`` says it all.

The parts are in `tools.stresstest`; this is only the command's name.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # run as a script, or by -m: the project's root
    from tools.stresstest.main import main

    sys.exit(main())
