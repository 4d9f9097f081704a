"""Files of settings: what Java reads in a properties file, we read too."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from fixture_types import LogCapture
from hypothesis import given
from hypothesis import strategies as st

from shmaccum.config import ProducerConfig
from shmaccum.config.settingsfile import parse_properties, read_settings
from shmaccum.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("acks=all", {"acks": "all"}),
        ("acks = all  \n", {"acks": "all  "}),
        ("acks:all\r\nretries 3\rlinger.ms\t=\t5", {"acks": "all", "retries": "3", "linger.ms": "5"}),
        ("# acks=1\n  ! acks=2\n\n   \nacks=all", {"acks": "all"}),
        ("a=1\na=2", {"a": "2"}),
        ("key", {"key": ""}),
        ("key=", {"key": ""}),
        ("=value", {"": "value"}),
        ("a==b:c", {"a": "=b:c"}),
        ("a \t= b", {"a": "b"}),
        ("a b=c", {"a": "b=c"}),
        ("a=one, \\\n   two, \\\r\n   three", {"a": "one, two, three"}),
        ("a=one\\\n# not a comment", {"a": "one# not a comment"}),
        ("a=ends in a backslash\\\\\nb=2", {"a": "ends in a backslash\\", "b": "2"}),
        ("a=cut\\", {"a": "cut"}),
        ("\\\n\n\\\n# a comment\n\\\n  a=1", {"a": "1"}),
        (r"a\ b\=c\:d=1", {"a b=c:d": "1"}),
        (r"a=\tx\n\r\f\u00e9\u2028\q\\\!", {"a": "\tx\n\r\f\u00e9\u2028q\\!"}),
        ("\\#a=1", {"#a": "1"}),
        (r"a=\ud83d\uDE00\u00e9", {"a": "\U0001f600\u00e9"}),
        (r"a=\\u12", {"a": r"\u12"}),
    ],
)
def test_properties(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


def test_the_content_says_which_it_is(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text('\n {"linger.ms": 5, "enable.idempotence": false}\n')
    assert read_settings(str(file)) == {"linger.ms": 5, "enable.idempotence": False}
    file.write_text("linger.ms=5\nname={not json}\n")
    assert read_settings(str(file)) == {"linger.ms": "5", "name": "{not json}"}
    file.write_text("linger.ms=5\n", encoding="utf-8-sig")  # as editors of Windows write it
    assert read_settings(str(file)) == {"linger.ms": "5"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read settings from .*settings: No such file or directory"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (rb"sasl.password=C:\users", r"settings: sasl.password: a \\u needs four hexadecimal digits behind it"),
        (b'{"acks": ', "begins as JSON but is not valid JSON"),
        (b'{"acks": 1} x', "begins as JSON but is not valid JSON"),
        (b'{"acks": ' + b"[" * 100_000, "begins as JSON but is not valid JSON"),
    ],
)
def test_unreadable_files(content: bytes | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read_settings(str(file))


SECRET = "sasl.password=secret\nssl.key.password=\nlinger.ms=5\n"


@pytest.mark.parametrize("content", [SECRET, '{"sasl.password": "secret", "linger.ms": 5}'])
def test_passwords_that_everybody_can_read_are_warned_of(content: str, tmp_path: Path, caplog: LogCapture) -> None:
    file = tmp_path / "settings"
    file.write_text(content)
    file.chmod(0o644)
    assert read_settings(file)["sasl.password"] == "secret"
    (warning,) = caplog.messages
    assert warning.startswith(
        f"{file} holds sasl.password and every user of the host can read it (mode 0644): chmod o-r"
    )


@pytest.mark.parametrize(("content", "mode"), [(SECRET, 0o640), (SECRET, 0o600), ("linger.ms=5\n", 0o644)])
def test_a_private_file_causes_no_warning(content: str, mode: int, tmp_path: Path, caplog: LogCapture) -> None:
    file = tmp_path / "settings"
    file.write_text(content)
    file.chmod(mode)
    read_settings(file)
    assert caplog.messages == []


@given(st.text(), st.sampled_from(sorted(ProducerConfig.settings)), st.text())
def test_any_text_is_settings_or_a_config_error(text: str, name: str, value: str) -> None:
    for file in (text, f"{name}={value}"):
        with contextlib.suppress(ConfigError):
            ProducerConfig.parse(parse_properties(file))
