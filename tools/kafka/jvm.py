"""How a JVM is started for Kafka's programs: small, and fast to start rather than fast to run, or for load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.kafka.jars import class_archive, jar_directory

HEAP: Final = "256m"

FOR_LOAD: Final = ("-Xmx1g", "-XX:TieredStopAtLevel=4")
"""Options of a broker that is measured: with the compiler that real ones have, which TLS needs most."""

_LOGGING: Final = {
    "showDateTime": "true",
    "dateTimeFormat": "HH:mm:ss.SSS",
    "log.org.apache.kafka.common.config.AbstractConfig": "warn",  # hundreds of lines of settings
}


def java_program() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def class_path() -> str:
    # A path with a wildcard would do for the JVM, but not for the archive.
    return ":".join(sorted(str(path) for path in jar_directory().glob("*.jar")))


def java_command(main: str, *arguments: str, options: Sequence[str] | None = None) -> list[str]:
    """Return the command that runs one of Kafka's main classes; without options, with the archive of loaded classes."""
    return [
        java_program(),
        f"-Xmx{HEAP}",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *((f"-XX:SharedArchiveFile={class_archive()}", "-Xlog:cds=off") if options is None else options),
        *(f"-Dorg.slf4j.simpleLogger.{name}={value}" for name, value in _LOGGING.items()),
        "-cp",
        class_path(),
        main,
        *arguments,
    ]
