"""A real Prometheus: fetched once from Debian's package, started on loopback, asked by its HTTP API.

The package is unpacked into the project's ``.kafka`` directory, not installed: that needs neither root nor a service.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final

from tools.kafka.jars import HOME
from tools.kafka.ports import free_port

PACKAGE: Final = "prometheus"
PROGRAMS: Final = HOME / "prometheus"
_START_S: Final = 30.0
_CONFIG: Final = Path(__file__).with_name("prometheus.yml")


class PrometheusMissingError(Exception):
    """Prometheus is not available on this machine; says why, and what to do."""


def ensure_prometheus() -> None:
    if PROGRAMS.exists():
        return
    HOME.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=HOME, prefix="fetch-") as scratch:
        _run(("apt-get", "download", PACKAGE), scratch)
        (package,) = Path(scratch).glob("*.deb")
        _run(("dpkg-deb", "--extract", str(package), "unpacked"), scratch)
        try:
            Path(scratch, "unpacked", "usr", "bin").rename(PROGRAMS)
        except OSError:
            if not PROGRAMS.exists():  # another process has fetched it
                raise


def _run(command: Sequence[str], directory: str) -> None:
    try:
        subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else ""
        raise PrometheusMissingError(
            f"{' '.join(command[:2])} could not get Debian's package {PACKAGE} ({error} {detail}); run "
            f"`apt-get update`, or put the programs prometheus and promtool into {PROGRAMS}"
        ) from error


def promtool(*arguments: str, given: bytes = b"") -> None:
    """Run promtool; raise ValueError with its messages if it finds something wrong."""
    done = subprocess.run([PROGRAMS / "promtool", *arguments], input=given, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"promtool {' '.join(arguments)}: {(done.stdout + done.stderr).decode()}")


@contextmanager
def running(directory: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes an exporter at ``HOST:PORT`` every second, until the block ends."""
    prometheus = Prometheus(free_port())
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "prometheus.yml"
    config.write_text(Template(_CONFIG.read_text()).substitute(rules=json.dumps(str(rules)), target=target))
    command: list[str | Path] = [PROGRAMS / "prometheus", f"--config.file={config}"]
    command += [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{prometheus.port}"]
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _START_S
        while not prometheus.is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ValueError(f"Prometheus does not start: {(directory / 'log').read_text()}")
            time.sleep(0.1)
        yield prometheus
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that listens at a port of loopback."""

    port: int

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def get(self, path: str, **parameters: object) -> Any:
        query = urllib.parse.urlencode({name: str(value) for name, value in parameters.items()})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=30) as response:
            return json.load(response)["data"]

    def series(self, expr: str, begin: float, end: float) -> list[tuple[Mapping[str, str], list[tuple[float, float]]]]:
        """Return labels and points of each series of a query, one point a second, without those that are NaN."""
        found = self.get("query_range", query=expr, start=begin, end=end, step=1)["result"]
        points = [(each["metric"], [(float(at), float(value)) for at, value in each["values"]]) for each in found]
        kept = [(labels, [(at, value) for at, value in values if value == value]) for labels, values in points]
        return [(labels, values) for labels, values in kept if values]
