"""The options of ``python -m tools.stress --exactly-once``."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_WITH_SPARK: Final = {"kill_driver": 0.1, "kill_sender": 0.08, "fail_task": 0.1, "slow_task": 0.1}
_DEFAULTS: Final[dict[str | None, dict[str, float]]] = {
    None: {"kill_driver": 0.4, "kill_sender": 0.05, "stop_worker": 0.03, "workers": 3},
    "local": _WITH_SPARK,
    "local-cluster": _WITH_SPARK | {"kill_executor": 0.03},
}
"""Options that differ between the kinds of runs, or that not every kind has."""
_EPILOG: Final = """\
With --spark, a real Structured Streaming query writes them, in a driver of its own, which starts again on its
checkpoint after each death (tools/stress/once_spark.py). Spark speculates only with local-cluster.

examples:
  python -m tools.stress --exactly-once --runs 400 --transaction-version 1
  python -m tools.stress --exactly-once --spark local --runs 100
  python -m tools.stress --exactly-once --spark local-cluster --runs 100 --kill-executor 0.1
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; exit with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.stress --exactly-once",
        description="Kill drivers, tasks and senders of a write that is exactly once, and count what is visible.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--spark", choices=("local", "local-cluster"), help="real Spark, with this master; without it, none")
    add("--runs", metavar="N", type=int, default=200, help="micro-batches [%(default)s]")
    add("--tasks", metavar="N", type=int, default=4, help="tasks of each [%(default)s]")
    add("--workers", metavar="N", type=int, help="without Spark: processes that write tasks [3]")
    add("--kill-driver", metavar="P", type=float, help="probability, of each plan and commit [0.4; Spark: 0.1]")
    add("--kill-worker", metavar="P", type=float, default=0.1, help="probability, of each task [%(default)s]")
    add("--stop-worker", metavar="P", type=float, help="without Spark: probability, of each task [0.03]")
    add(
        "--kill-sender", metavar="P", type=float, help="probability, of each look at the tasks [0.05; Spark: task 0.08]"
    )
    add("--kill-executor", metavar="P", type=float, help="with local-cluster: probability, of each task [0.03]")
    add("--fail-task", metavar="P", type=float, help="with Spark: probability, that a task's own code fails [0.1]")
    add("--slow-task", metavar="P", type=float, help="with Spark: probability, that a task waits, half done [0.1]")
    add("--transaction-version", metavar="V", type=int, choices=(1, 2), default=2, help="the brokers' [%(default)s]")
    add("--seed", metavar="X", type=int, default=secrets.randbelow(1 << 32), help="[a new one, which the report shows]")
    add("--json", metavar="FILE", type=Path, help="write the report to FILE")
    options = parser.parse_args(arguments)
    mine = _DEFAULTS[options.spark]
    for name in sorted({name for names in _DEFAULTS.values() for name in names}):
        if getattr(options, name) is None:
            setattr(options, name, mine.get(name))
        elif name not in mine:
            kinds = [
                f"--spark {kind}" if kind else "runs without --spark" for kind in _DEFAULTS if name in _DEFAULTS[kind]
            ]
            parser.error(f"--{name.replace('_', '-')} is for {' and '.join(kinds)} only")
    return options
