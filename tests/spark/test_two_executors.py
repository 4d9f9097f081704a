from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from fixture_types import Reader

DRIVER = Path(__file__).parent / "two_executors.py"


def spark_home(directory: Path) -> Path:
    """Return a home for Spark's workers: pyspark's own, but what they write does not go into it."""
    directory.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (directory / path.name).symlink_to(path)
    return directory


@pytest.mark.timeout(300)
def test_executors_share_one_slab_and_one_sender(
    tmp_path: Path, stored: Reader, until_gone: Callable[..., None]
) -> None:
    environment = os.environ | {"SPARK_HOME": str(spark_home(tmp_path / "spark")), "PYSPARK_PYTHON": sys.executable}
    answer = subprocess.run(
        [sys.executable, DRIVER], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, timeout=280, check=True
    )
    found = json.loads(answer.stdout.splitlines()[-1])

    assert len(found["executors"]) == len(found["directories"]) == 2
    assert len(found["workers"]) >= 4
    assert set(found["workers"]) <= set(found["producers"])
    assert found["sender"] not in found["workers"]
    assert found["sender starts"] == 1
    for topic in ("written", "sent"):
        assert sorted(int(record.value) for record in stored(tmp_path / "log", topic)) == list(range(20_000))
    until_gone(found["slab"], found["sender"], *found["executors"], *found["workers"])
