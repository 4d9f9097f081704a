"""Where Apache Kafka cannot be had, its tests are skipped and say why; where CI runs them, they fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from runs import run_python

TEST = "tests/tools/kafka/test_cluster.py::test_the_dump"


def run_without_java(nowhere: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a test that needs Apache Kafka on a machine that has no Java, as far as it can see."""
    others = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    environment = others | {"PATH": str(nowhere), "JAVA_HOME": str(nowhere)} | environment
    return run_python("-m", "pytest", "-p", "no:cacheprovider", "-rs", TEST, env=environment)


def test_skipped_with_the_reason(tmp_path: Path) -> None:
    done = run_without_java(tmp_path)
    assert done.returncode == pytest.ExitCode.OK
    assert "1 skipped" in done.stdout
    assert "no Apache Kafka: Apache Kafka needs a Java runtime of version 17 or later" in done.stdout


def test_failed_in_ci(tmp_path: Path) -> None:
    done = run_without_java(tmp_path, CI="true")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 error" in done.stdout
    assert "CI is to have Apache Kafka: Apache Kafka needs a Java runtime" in done.stdout
