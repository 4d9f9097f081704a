"""``python -m tools.wheels.fresh_root WHEEL``: from a bare Debian to an acknowledged record, and the time of each step.

debootstrap makes a root that has Debian's base, Python and its venv, and no compiler. There, each step is one that a
new user types: an environment, `pip install` of the wheel with its dependencies from PyPI, and the first program of
README.md. Its broker is Apache Kafka, outside the root. Needs root's rights, for chroot.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tools.kafka import KafkaCluster, KafkaMissingError, ensure_kafka
from tools.wheels.building import ANY_TOPIC, HOME, ROOT, WheelError, run

_SUITE: Final = "trixie"
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_ENTER: Final = Path(__file__).with_name("enter.sh")


def debian() -> Path:
    """Return a directory with a bare Debian and its Python, made if it is not there yet."""
    root = HOME / "debian"
    stamp = root / "complete"
    if stamp.exists():
        return root
    if os.geteuid() or shutil.which("debootstrap") is None:
        raise WheelError("a fresh root needs root's rights and debootstrap: `apt-get install debootstrap`")
    shutil.rmtree(root, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    packages = "--include=python3,python3-venv,ca-certificates"
    run("no fresh root", ["debootstrap", "--variant=minbase", packages, _SUITE, str(root)], HOME)
    stamp.touch()
    return root


def first_program(readme: str, bootstrap_servers: str) -> str:
    """Return README.md's first program without Spark, for a broker of this machine."""
    found = re.search(r"```python\n(from shmaccum import Producer\n.*?)```", readme, re.DOTALL)
    if found is None or "broker1:9092" not in found[1]:
        raise WheelError(
            "README.md has no program that begins with `from shmaccum import Producer` and names broker1:9092"
        )
    return found[1].replace("broker1:9092", bootstrap_servers)


def try_in(root: Path, wheel: Path, program: str) -> list[tuple[str, float, str]]:
    """Install the wheel in a new home directory of the root, and run the program.

    Returns:
        What a user types, how long each took, and what it wrote.
    """
    if _CERTIFICATES.exists():  # this machine's way to PyPI can have a certificate of its own
        shutil.copy(_CERTIFICATES, root / _CERTIFICATES.relative_to("/"))
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    with tempfile.TemporaryDirectory(dir=root / "home", prefix="user-") as home:
        shutil.copy(wheel, home)
        Path(home, "first.py").write_text(program)
        directory = "/" + str(Path(home).relative_to(root))
        install = f"venv/bin/pip install --quiet ./{wheel.name}"
        commands = ("python3 -m venv venv", install, "venv/bin/python first.py")
        return [_type(root, directory, command) for command in commands]


def _type(root: Path, directory: str, command: str) -> tuple[str, float, str]:
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", str(_ENTER), str(root)]
    typed = [*apart, "sh", "-c", f"cd {directory} && {command}"]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": directory, "LANG": "C.UTF-8"}
    start = time.monotonic()
    done = subprocess.run(typed, env=environment, capture_output=True, text=True, timeout=600, check=False)
    seconds = time.monotonic() - start
    if done.returncode:
        raise WheelError(f"{command!r} ended with {done.returncode} in the fresh root: {done.stderr[-3000:]}")
    return command, seconds, done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wheels.fresh_root", description=__doc__.split("\n\n")[0])
    parser.add_argument("wheel", type=Path, help=f"for the CPython of Debian's {_SUITE}, 3.13, and this machine")
    wheel = parser.parse_args().wheel
    if not wheel.exists():
        parser.error(f"{wheel} does not exist; `make wheels` builds it")
    try:
        root = debian()
        ensure_kafka()
        with (
            tempfile.TemporaryDirectory(prefix="shmaccum-fresh-") as scratch,
            KafkaCluster(Path(scratch), overrides=ANY_TOPIC) as cluster,
        ):
            steps = try_in(root, wheel, first_program((ROOT / "README.md").read_text(), cluster.bootstrap_servers))
    except (WheelError, KafkaMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    for command, seconds, said in steps:
        print(f"{seconds:6.1f} s  {command}")
        if said:
            print(f"          {said}")
    print(f"{sum(seconds for _, seconds, _ in steps):6.1f} s  in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
