#!/usr/bin/env python3
"""Random kills under load, and what became of every record: ``tools/stress.py --help`` says it all.

The parts are in `tools.stress`; this is only the command's name.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a script, or by -m: the project's root, behind what PYTHONPATH names (the package as compiled, say).
    del sys.path[0]
    sys.path.insert(len(os.environ.get("PYTHONPATH", "").split(":")), str(Path(__file__).resolve().parents[1]))
    from tools.stress.main import main

    sys.exit(main())
