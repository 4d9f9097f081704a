"""Checks the models, each of them in a program of its own.

In each run, spin translates a model to a program, gcc compiles it, and the program visits every reachable state. The
models must hold; each mutant must be found, by the property that it is known to violate.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tools.model.runs import PROPERTIES, Run

HERE: Final = Path(__file__).parent
MEMORY_MIB: Final = {False: 1900, True: 7800}
"""What a run may take; by whether it is a long one."""
DEPTH: Final = {False: 1_500_000, True: 30_000_000}
"""Longest path that is followed: a model for which that is not enough has not been checked."""
INSTALL: Final = ("apt-get", "install", "--yes", "--no-install-recommends", "spin", "gcc", "libc6-dev")
_SAFETY: Final = ("-DSAFETY", "-DCOLLAPSE")
_PROGRESS: Final = ("-DNP", "-DNFAIR=4", "-DCOLLAPSE")
_STATES: Final = re.compile(r"(\S+) states, stored")
_MEMORY: Final = re.compile(r"(\S+)\s+total actual memory usage")
_VIOLATION: Final = re.compile(r"pan:1: (.*) \(at depth")


class Result(NamedTuple):
    """The result of a run."""

    states: int
    memory_mib: int
    seconds: float
    violation: str
    """What `pan` says was violated; empty if nothing was."""
    failure: str
    """Why the run is incomplete; empty if it is complete."""


def missing_tools() -> str:
    """Return which tools are missing, as a sentence; empty if none is."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    return f"the models need {' and '.join(missing)}" if missing else ""


def check(run: Run) -> Result:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shmaccum-model-") as directory:

        def call(*command: str) -> str:
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
            # `pan` ends with the number of violations, and a mutant is to have one.
            if done.returncode and command[0] != "./pan":
                raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
            return done.stdout + done.stderr

        defines = [f"-D{name}" if value is True else f"-D{name}={value}" for name, value in run.defines.items()]
        call("spin", "-a", *defines, str(HERE / run.model))
        how = (*(_PROGRESS if run.progress else _SAFETY), f"-DMEMLIM={MEMORY_MIB[run.long]}")
        call("gcc", "-O2" if run.long else "-O0", "-w", *how, "-o", "pan", "pan.c")
        output = call("./pan", "-n", f"-m{DEPTH[run.long]}", *(("-l", "-f") if run.progress else ()))
    violation = _VIOLATION.search(output)
    states, memory = _STATES.search(output), _MEMORY.search(output)
    complete = states is not None and memory is not None and "max search depth too small" not in output
    complete = complete and "Search not completed" not in output
    return Result(
        states=int(float(states[1])) if states else 0,
        memory_mib=round(float(memory[1])) if memory else 0,
        seconds=time.monotonic() - started,
        violation=violation[1] if violation else "",
        failure="" if complete or violation else output[-2000:],
    )


def verdict(run: Run, result: Result) -> str:
    """Return what is wrong with a result; empty if it is as expected."""
    if result.failure:
        return f"did not come to its end:\n{result.failure}"
    if not run.violates:
        return result.violation
    if not result.violation:
        return f"was not found; it must violate {run.violates}"
    if not result.violation.startswith(PROPERTIES[run.violates]):
        return f"was found by another property than {run.violates}: {result.violation}"
    return ""


def check_all(runs: Sequence[Run], jobs: int) -> bool:
    """Run them, ``jobs`` at a time, print their results, and return whether all are as expected."""
    good = True
    with ThreadPoolExecutor(jobs) as pool:
        for run, result in zip(runs, pool.map(check, runs), strict=True):
            wrong = verdict(run, result)
            good = good and not wrong
            found = f"found: {run.violates.lower().replace('_', ' ')}" if run.violates else "holds"
            figures = f"{result.states:>12,} states {result.memory_mib:>6,} MiB {result.seconds:>6.1f} s"
            print(f"{run.name:<58} {figures}  {'WRONG: ' + wrong if wrong else found}", flush=True)
    return good
