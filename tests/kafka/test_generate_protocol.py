"""tools/generate_protocol: the messages are those of Kafka's own definitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixture_types import Capture, MonkeyPatch

from tools import generate_protocol

pytestmark = pytest.mark.usefixtures("apache_kafka")


def test_messages_are_up_to_date(capsys: Capture) -> None:
    """If this fails: ``python -m tools.generate_protocol``."""
    assert generate_protocol.main(["--check"]) == 0, capsys.readouterr().out


def test_the_check_shows_what_differs(tmp_path: Path, monkeypatch: MonkeyPatch, capsys: Capture) -> None:
    module = tmp_path / "messages.py"
    monkeypatch.setattr(generate_protocol, "MODULE", module)
    assert generate_protocol.main([]) == 0
    text = module.read_text()
    module.write_text(text.replace('"topic_id", UUID', '"topic_id", STRING'))
    assert generate_protocol.main(["--check"]) == 1
    assert '+            Field("topic_id", UUID, 0, since=10),' in capsys.readouterr().out


def test_versions_that_kafka_does_not_have_are_an_error(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(generate_protocol, "MESSAGES", {"Produce": (2, 99)})
    with pytest.raises(ValueError, match="Produce has the versions 3 to 13, not 2 to 99"):
        generate_protocol.generate(generate_protocol.jar_path())
