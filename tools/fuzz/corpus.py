"""The stored inputs: a directory for each target, a file for each input, named for its content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).resolve().parents[2] / "tests" / "fuzz_corpus"
"""Inputs that once failed, and some that reach far."""


def load(corpus: Path, target: str) -> list[tuple[Path, bytes]]:
    """Return the inputs of a target, and where each is."""
    return [(path, path.read_bytes()) for path in sorted((corpus / target).glob("*.*"))]


def keep(corpus: Path, target: str, data: bytes, suffix: str) -> Path:
    """Store an input, if it is new; return its path."""
    directory = corpus / target
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{hashlib.sha256(data).hexdigest()[:16]}{suffix}"
    path.write_bytes(data)
    return path
