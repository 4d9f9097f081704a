"""``python -m tools.wheels``: the sdist and all wheels into dist/, checked and tried; ``make wheels`` calls it.

A wheel that cannot be built, or that fails a check, is named with the reason, and the exit status is 1. One that was
built but cannot be tried here is named, too; that alone is no failure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.kafka import KafkaCluster, KafkaMissingError, ensure_kafka
from tools.wheels import building
from tools.wheels.building import TARGETS, Target, WheelError
from tools.wheels.environments import UntriedError, try_wheel

_HEAD: Final = (
    "| wheel | size, MB | auditwheel finds it consistent with | compiled in, s | `pip install`, s | tried with |\n"
    "| --- | --- | --- | --- | --- | --- |"
)


@dataclass
class _Wheel:
    """What is known of a wheel when it was built."""

    target: Target
    path: Path
    platform: str
    seconds: float
    installed: str = ""
    tried: str = "not tried"

    def row(self) -> str:
        size = self.path.stat().st_size / 1e6
        built = f"| `{self.target}` | {size:.1f} | {self.platform} | {self.seconds:.0f} "
        return f"{built}| {self.installed} | {self.tried} |"


def main() -> int:
    about = "The sdist and the wheels of a release."
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description=about)
    parser.add_argument("--only", nargs="+", metavar="PART", help="wheels with this in their tag, as in cp312 or musl")
    parser.add_argument("--no-trial", dest="trial", action="store_false", help="build and check them only")
    arguments = parser.parse_args()
    chosen = [target for target in TARGETS if any(part in str(target) for part in arguments.only or [""])]
    if not chosen:
        tags = ", ".join(map(str, TARGETS))
        parser.error(f"no wheel has {' or '.join(arguments.only)} in its tag; choose from {tags}")
    directory = building.ROOT / "dist"
    directory.mkdir(exist_ok=True)
    try:
        for old in directory.glob("shmaccum-*"):
            old.unlink()
        sdist = building.build_sdist(directory)
        print(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB", flush=True)
        source = building.unpack_sdist(sdist)
        plain = building.build_plain(source)
        built, failures = _build(chosen, source, plain, directory)
        building.check_description([sdist, *(wheel.path for wheel in built)])
    except WheelError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.trial:
        failures += _try_all(built)
    print(_HEAD)
    for wheel in built:
        print(wheel.row())
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def _build(targets: Iterable[Target], source: Path, plain: Path, directory: Path) -> tuple[list[_Wheel], list[str]]:
    built, failures = [], []
    for target in targets:
        start = time.monotonic()
        try:
            path = building.build_wheel(source, plain, target, directory)
            seconds = time.monotonic() - start
            built.append(_Wheel(target, path, building.check_platform(path, target), seconds))
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB in {seconds:.0f} s", flush=True)
        except WheelError as error:
            failures.append(str(error))
            print(f"{target} failed", flush=True)
    return built, failures


def _try_all(wheels: Iterable[_Wheel]) -> list[str]:
    try:
        ensure_kafka()
    except KafkaMissingError as error:
        return [f"no wheel was tried: {error}"]
    failures = []
    with (
        tempfile.TemporaryDirectory(prefix="shmaccum-kafka-") as scratch,
        KafkaCluster(Path(scratch), overrides=building.ANY_TOPIC) as cluster,
    ):
        for wheel in wheels:
            try:
                wheel.installed, wheel.tried = try_wheel(wheel.path, wheel.target, cluster.bootstrap_servers)
            except UntriedError as error:
                wheel.tried = f"not tried: {error}"
            except WheelError as error:
                wheel.tried = "failed"
                failures.append(str(error))
    return failures


if __name__ == "__main__":
    sys.exit(main())
