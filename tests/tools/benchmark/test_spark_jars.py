"""Which version of Spark's own Kafka sink is fetched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.benchmark.errors import MissingError
from tools.benchmark.spark import jars


def test_a_sink_of_another_version_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where one lies ready: the versions are to be the same, if they can be had."""
    asked, there = [], {"4.2.0"}

    def fetch(version: str) -> str:
        asked.append(version)
        return "" if version in there else "404"

    monkeypatch.setattr(jars, "HOME", tmp_path)
    monkeypatch.setattr(jars, "version", lambda _: "4.2.0")
    monkeypatch.setattr(jars, "_fetch", fetch)
    (tmp_path / f"spark-sql-kafka-0-10-{jars.FALLBACK}").mkdir()
    assert jars.spark_sink_jars()[0] == "4.2.0"
    there.clear()
    for _ in range(2):  # for some time, a repository that had none is not asked again
        assert jars.spark_sink_jars()[0] == jars.FALLBACK
    assert asked == ["4.2.0", "4.2.0"]
    (tmp_path / f"spark-sql-kafka-0-10-{jars.FALLBACK}").rmdir()
    os.utime(tmp_path / "spark-sql-kafka-0-10-4.2.0.missing", (0, 0))
    with pytest.raises(MissingError, match=r"4\.2\.0: 404; 4\.0\.0: 404"):
        jars.spark_sink_jars()
