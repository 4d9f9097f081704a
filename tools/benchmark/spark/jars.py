"""Fetches Spark's own Kafka sink, ``spark-sql-kafka-0-10``, from Maven Central.

It fetches the version of the installed pyspark. If the repository does not have it complete, it takes the sink of Spark
4.0.0, which works with later versions; the result has the version. As in `tools.kafka.jars`, a directory named for the
version is the stamp: it gets its name only when it is complete. If the other version is used, a file stores when, and
Maven is not asked again for a day.

``python -m tools.benchmark.spark.jars`` fetches them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tools.benchmark.errors import MissingError
from tools.kafka.jars import HOME, copy_dependencies, missing_maven

FALLBACK: Final = "4.0.0"
_ASKED_AGAIN_S: Final = 24 * 3600.0
_NEEDED: Final = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "kafka-clients", "commons-pool2")
"""Packages that pyspark does not contain."""


def spark_sink_jars() -> tuple[str, Sequence[Path]]:
    """Return the version of Spark's sink, and its jars; fetch them if they are missing."""
    complaints: list[str] = []
    for each in dict.fromkeys((version("pyspark"), FALLBACK)):
        complaint = "" if _directory(each).exists() else _asked_lately(each) or _fetch(each)
        if not complaint:
            if complaints and not _asked_lately(version("pyspark")):
                _note(version("pyspark")).touch()
            return each, sorted(_directory(each).glob("*.jar"))
        complaints.append(f"{each}: {complaint}")
    raise MissingError(f"Maven could not get Spark's Kafka sink; {'; '.join(complaints)}")


def _directory(of: str) -> Path:
    return HOME / f"spark-sql-kafka-0-10-{of}"


def _note(of: str) -> Path:
    return HOME / f"{_directory(of).name}.missing"


def _asked_lately(of: str) -> str:
    """Return a text if Maven did not have this version within the last day; empty if it was not asked."""
    try:
        asked = _note(of).stat().st_mtime
    except FileNotFoundError:
        return ""
    return "not there when last asked for" if 0 <= time.time() - asked < _ASKED_AGAIN_S else ""


def _fetch(of: str) -> str:
    """Fetch a version; return Maven's error, or an empty text."""
    wrong = missing_maven()
    if wrong:
        raise MissingError(wrong)
    HOME.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=HOME, prefix="fetch-") as scratch:
        fetched, jars = Path(scratch, "fetched"), Path(scratch, "jars")
        if complaint := copy_dependencies(Path(__file__).with_name("pom.xml"), of, fetched):
            return complaint[:300]
        jars.mkdir()
        for jar in fetched.glob("*.jar"):
            if jar.name.startswith(_NEEDED):
                jar.rename(jars / jar.name)
        jars.rename(_directory(of))
    return ""


def main() -> int:
    try:
        spark_sink_jars()
    except MissingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
