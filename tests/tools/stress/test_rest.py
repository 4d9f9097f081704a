"""The end of a run whose last sender was killed when no producer needed another."""

from __future__ import annotations

import json
from pathlib import Path

from producers import settings_of
from runs import run_python

from tools.support.slabcheck import shared_files

# In a process of its own: whose children it all is.
COME_TO_REST = """
import json, sys
from pathlib import Path
from tools.support.processes import Children
from tools.stress.rest import come_to_rest

name, messages, settings = sys.argv[1:]
children = Children(Path(messages))
figures, problems = come_to_rest(name, json.loads(settings), children)
print(json.dumps([figures is not None, problems + children.problems]))
"""


def test_the_sender_that_the_last_producer_starts_leaves_too(slab_name: str, tmp_path: Path) -> None:
    settings = settings_of(slab_name, tmp_path / "log", sender_idle_ms=60_000)
    done = run_python("-c", COME_TO_REST, slab_name, tmp_path / "messages", json.dumps(settings))
    assert json.loads(done.stdout) == [True, []], done.stderr
    assert shared_files(slab_name) == []
