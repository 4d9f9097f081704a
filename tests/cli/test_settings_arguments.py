"""How commands get settings: from a file or standard input, and single ones on top."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from shmaccum.cli.settings_arguments import add_settings, given_settings
from shmaccum.errors import ConfigError


def parsed(*arguments: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_settings(parser)
    return given_settings(parser.parse_args(arguments), {"acks": "all", "retries": "3"})


def test_single_settings_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text("acks=1\nlinger.ms=5\n")
    assert parsed("--config", str(file), "-X", "linger.ms=7") == {"acks": "1", "retries": "3", "linger.ms": "7"}


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"acks": "1"})))
    assert parsed("--config", "-") == {"acks": "1", "retries": "3"}


def test_standard_input_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    with pytest.raises(ConfigError, match="cannot read settings from standard input: it is not UTF-8 text"):
        parsed("--config", "-")
