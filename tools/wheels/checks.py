"""What auditwheel and twine say of the files.

auditwheel reads from the extension modules which libraries and versions of symbols they need, and so with which
platforms they work. Nothing has to be repaired, since the wheels bring no libraries: a wheel that needs one is refused.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tools.wheels.targets import Target, WheelError


def check_platform(wheel: Path, target: Target) -> str:
    """Return the platform that auditwheel finds a wheel consistent with: the target's, or an older one.

    Raises:
        WheelError: it works with fewer systems than its tag says, or needs a library that not all of them have.
    """
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True, check=False
    )
    told = " ".join((done.stdout + done.stderr).split())
    found = re.search(r'platform tag: "(\w+)"', told)
    if done.returncode or found is None:
        raise WheelError(f"{target}: auditwheel ended with {done.returncode}: {told}")
    if _kind(found[1]) != _kind(target.platform.tag) or _policy(found[1]) > _policy(target.platform.tag):
        raise WheelError(f"{target}: auditwheel finds it consistent with {found[1]} only: {told}")
    return found[1]


def _kind(platform: str) -> tuple[str, str]:
    """Return the C library and the machine of a platform's tag."""
    matched = re.fullmatch(r"(manylinux|musllinux|linux)(?:_\d+_\d+)?_(\w+)", platform)
    return (matched[1], matched[2]) if matched else ("", platform)


def _policy(platform: str) -> tuple[int, ...]:
    """Return the version of the C library that a tag names."""
    found = re.search(r"_(\d+)_(\d+)_", platform)
    return (int(found[1]), int(found[2])) if found else ()


def check_description(files: list[Path]) -> None:
    """Have twine check what PyPI shows of the files.

    Raises:
        WheelError: it would refuse one.
    """
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelError(f"twine would not upload the files: {done.stdout}{done.stderr}")
