"""Checks the Java runtime that PySpark and a Kafka broker need.

Imports only the standard library, so that the project's set-up can use it before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

REQUIRED_JAVA: Final = 17
"""Spark 4 and brokers of Kafka 4 need it."""
INSTALL_JAVA: Final = ("apt-get", "install", "--yes", "--no-install-recommends", "default-jre-headless")
"""Installs one on Debian: version 17 on Debian 12, 21 on Debian 13."""


def _version() -> int | None:
    """Return the major version of the Java that Spark would start, or None if none runs."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return None
    try:
        # Java prints it on standard error: openjdk version "17.0.15" 2025-04-15; before 9 it was "1.8.0".
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r'version "(?:1\.)?([0-9]+)', answer)
    return int(version[1]) if version else None


def missing_java(who: str = "PySpark") -> str:
    """Return why Java does not do, with the command that fixes it; empty if it does."""
    version = _version()
    if version is not None and version >= REQUIRED_JAVA:
        return ""
    found = "found none" if version is None else f"found {version}"
    return (
        f"{who} needs a Java runtime of version {REQUIRED_JAVA} or later, but {found}; install one with "
        f"`{'' if os.geteuid() == 0 else 'sudo '}{' '.join(INSTALL_JAVA)}`, or point JAVA_HOME to one"
    )
