"""``python -m tools.wheels.over WHEEL ARGUMENT ...``: this source tree's tests and tools over a wheel.

The arguments are those of Python, as in ``-m pytest tests/core`` or ``-m tools.stress --producers 4``. The package is
the wheel's, everything else this source tree's; a wheel for another machine runs in its emulator. The environment is
kept in build/wheels for the next time.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from tools.wheels.building import HOME, ROOT, TARGETS, Target, WheelError
from tools.wheels.environments import Environment, UntriedError

_FOR_TESTS: Final = (
    *("pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "hypothesis>=6.100", "xxhash>=3"),
    *("pyarrow>=18", "greenlet>=3"),
)
"""Of the extra `test-core`, what the tests of pool, accumulator and slab need."""
_NOT_FOR_MUSL: Final = ("confluent-kafka>=2.10", "aiokafka>=0.13", "gevent>=24.10", "eventlet>=0.37")
"""Likewise; pip finds no wheels for musl. Tests that need them fail there, and there are no brokers."""


def main(arguments: list[str]) -> int:
    """Become the command; return an exit status only if it cannot be run."""
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    wheel = Path(arguments[0]).absolute()
    try:
        made = _environment(wheel, target_of(wheel))
        variables = {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{made.packages}:{ROOT}"}
        command = [str(made.python), *_with_path(arguments[1:], made)]
        os.execve(command[0], command, made.variables | variables)
    except (WheelError, UntriedError) as error:
        print(error, file=sys.stderr)
    return 1


def target_of(wheel: Path) -> Target:
    for target in TARGETS:
        if wheel.name.endswith(f"-{target.tag}.whl") and wheel.exists():
            return target
    raise WheelError(f"{wheel} is none of the wheels that `make wheels` leaves in dist/")


def _with_path(arguments: list[str], made: Environment) -> list[str]:
    """Return the arguments; pytest would otherwise put this source tree's package before the wheel's."""
    if arguments[:2] != ["-m", "pytest"]:
        return arguments
    brokers = ["-p", "no:brokers"] if made.target.platform.is_musl else []
    return [*arguments[:2], "-o", f"pythonpath={made.packages} . tests tests/support", *brokers, *arguments[2:]]


def _environment(wheel: Path, target: Target) -> Environment:
    """Return the environment of the target, made again if the wheel is newer."""
    directory = HOME / "over" / str(target)
    stamp = directory / "complete"
    made = Environment(target, directory)
    if not (stamp.exists() and stamp.stat().st_mtime > wheel.stat().st_mtime):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        made.install(wheel, *_FOR_TESTS, *(() if target.platform.is_musl else _NOT_FOR_MUSL))
        stamp.touch()
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
