"""Which Java is found, and what is said where it will not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmaccum.cli.java import java_version, missing_java


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def put_java(home: Path, script: str) -> None:
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25" 2025-09-16', 25),
        ("something else", None),
    ],
)
def test_versions(answer: str, version: int | None, home: Path) -> None:
    put_java(home, f"echo '{answer}' >&2")
    assert java_version() == version


def test_one_that_will_do(home: Path) -> None:
    put_java(home, "echo 'openjdk version \"21.0.1\"' >&2")
    assert missing_java() == ""


@pytest.mark.parametrize(("script", "found"), [("echo 'version \"11.0.2\"' >&2", "found 11"), ("exit 1", "found none")])
def test_one_that_will_not(script: str, found: str, home: Path) -> None:
    put_java(home, script)
    assert f"version 17 or later, but {found}; install one with `" in missing_java()
    assert "apt-get install --yes --no-install-recommends default-jre-headless`" in missing_java()


def test_none_at_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert java_version() is None
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(home))
    assert java_version() is None
