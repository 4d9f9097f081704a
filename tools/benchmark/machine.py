"""Describes the machine of a run, without identifying it."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from tools.kafka.jars import VERSION as KAFKA_VERSION

PACKAGES: Final = ("confluent-kafka", "kafka-python", "aiokafka", "pyspark", "pyarrow", "numpy", "posix_ipc")


def machine() -> dict[str, Any]:
    """Describe the machine: processor, memory, kernel, versions; no names."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1),
        "kernel": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {
            "Python": platform.python_version(),
            "Java": _java_version(),
            "Apache Kafka": KAFKA_VERSION,
            "librdkafka": _librdkafka_version(),
            **{package: _version(package) for package in PACKAGES},
        },
    }


def commit() -> str:
    """Return the commit that is measured, with a ``+`` if files differ from it; empty outside of a checkout."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def _librdkafka_version() -> str:
    from confluent_kafka import libversion

    found: str = libversion()[0]
    return found


def _java_version() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return "-"
    words = done.stderr.split('"')
    return words[1] if len(words) > 1 else "-"
