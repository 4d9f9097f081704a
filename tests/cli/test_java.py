"""Which Java is found, and what is said where it will not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmaccum.cli.java import missing_java


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", ""),
        ("echo 'openjdk version \"21-ea\" 2023-09-19' >&2", ""),
        ("echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"25\" 2025-09-16' >&2", ""),
        ("echo 'version \"11.0.2\"' >&2", "found 11"),
        ("echo 'java version \"1.8.0_392\"' >&2", "found 8"),
        ("echo something else >&2", "found none"),
        ("exit 1", "found none"),
        (None, "found none"),
    ],
)
def test_a_java_that_will_do_or_not(
    script: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    if script is not None:
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = missing_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(java.parent))
    assert missing_java() == said
    assert bool(said) == bool(found)
    if found:
        assert f"version 17 or later, but {found}; install one with `" in said
        assert "apt-get install --yes --no-install-recommends default-jre-headless`" in said
