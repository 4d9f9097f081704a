"""``python -m tools.sanitized ARGUMENTS``: Python, with a core that has AddressSanitizer and UBSan.

``python -m tools.sanitized -m pytest tests/core`` runs tests so. The package is built into a directory of its own, once
for each state of the sources, and run by another interpreter that has libasan loaded. A finding ends the process.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.support.compiling import sanitizer_library

_ROOT: Final = Path(__file__).resolve().parents[1]
_BUILT: Final = _ROOT / "build" / "sanitized"
_STAMP: Final = _BUILT / "made-from"
_SOURCES: Final = (".py", ".pyx", ".pxi", ".h")
_OPTIONS: Final = {
    # Python's own objects live for as long as it does. An end by abort would be taken for a crash without a report.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "PYTHONMALLOC": "malloc",
}


def run(arguments: Sequence[str]) -> int:
    try:
        library = sanitizer_library("asan")
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    _build()
    environment = os.environ | _OPTIONS | {"LD_PRELOAD": library, "PYTHONPATH": f"{_BUILT}{os.pathsep}{_ROOT}"}
    return subprocess.run([sys.executable, "-P", *arguments], env=environment, check=False).returncode


def _build() -> None:
    """Compile the package, unless the build is up to date."""
    digest = hashlib.sha256()
    for path in sorted([_ROOT / "setup.py", *(_ROOT / "shmaccum").rglob("*")]):
        if path.suffix in _SOURCES:
            digest.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes())
    if _STAMP.exists() and _STAMP.read_text() == digest.hexdigest():
        return
    for old in (_BUILT, *(_ROOT / "build").glob("lib*")):  # it can contain another kind of build
        shutil.rmtree(old, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    environment = os.environ | {"SHMACCUM_SANITIZE": "1"}
    subprocess.run([*command, "--target", str(_BUILT), str(_ROOT)], env=environment, check=True)
    for path in (_ROOT / "build").glob("lib*"):
        shutil.rmtree(path)
    _STAMP.write_text(digest.hexdigest())


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
