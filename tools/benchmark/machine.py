"""Describes the machine of a run, without identifying it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tools.kafka.jars import VERSION as KAFKA_VERSION

PACKAGES: Final = ("confluent-kafka", "kafka-python", "aiokafka", "pyspark", "pyarrow", "numpy", "posix_ipc")


def machine() -> dict[str, Any]:
    """Describe the machine: processor, memory, kernel, versions; no names."""
    from confluent_kafka import libversion

    model = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    java = re.search(r'"(.*?)"', _said("java", "-version"))
    return {
        "cpu": " ".join(model[1].split()) if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1),
        "kernel": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {
            "Python": platform.python_version(),
            "Java": java[1] if java else "-",
            "Apache Kafka": KAFKA_VERSION,
            "librdkafka": libversion()[0],
            **{package: version(package) for package in PACKAGES},
        },
    }


def commit() -> str:
    """Return the commit that is measured, with a ``+`` if files differ from it; empty outside of a checkout."""
    return _said("git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*", on_failure="").strip()


def _said(*command: str, on_failure: str | None = None) -> str:
    """Return what a command prints; empty if it is not there."""
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return on_failure if done.returncode and on_failure is not None else done.stdout + done.stderr
