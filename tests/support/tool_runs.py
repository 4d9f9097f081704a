"""Tools that tests start as programs, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tools.leftovers import VARIABLE, is_started_by, pids

_ROOT = Path(__file__).resolve().parents[2]


class ToolRun:
    """``python -m tools.<tool> --json``, started; all descendants have a variable of its environment."""

    def __init__(self, tool: str, directory: Path, *arguments: str) -> None:
        self._mark = f"{tool}-test-{os.getpid()}-{time.monotonic_ns()}"
        self._directory = directory
        self.result_file = directory / "result.json"
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tools.{tool}", *arguments, "--json", self.result_file],
            cwd=_ROOT,
            env=os.environ | {VARIABLE: self._mark, "TMPDIR": str(directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        for pid in self.started():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def end(self, patience_s: float) -> tuple[int, str, str]:
        """Wait for the end; return the status, the output and the messages."""
        out, errors = self.process.communicate(timeout=patience_s)
        return self.process.returncode, out, errors

    def started(self) -> list[int]:
        return [pid for pid in pids() if is_started_by(self._mark, pid)]

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.result_file.read_text())
        return result

    def files(self) -> list[Path]:
        return [path for path in self._directory.iterdir() if path != self.result_file]
