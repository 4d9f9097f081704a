"""Lines of JAAS, as they stand in the options of Spark jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmaccum.config.jaas import JaasEntry, parse_jaas


@pytest.mark.parametrize(
    "text",
    [
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret";',
        "shaded.kafka.common.security.plain.PlainLoginModule REQUIRED username='alice' password='s3cret' ;",
        "PlainLoginModule required\n  username=alice\n  password = s3cret;",
        '/* who */ PlainLoginModule required // how\n username="alice" password="s3cret"; // end',
        '  PlainLoginModule sufficient username="al\\151ce" password="s3\\cret";',
    ],
)
def test_the_same_in_many_forms(text: str) -> None:
    assert parse_jaas(text) == JaasEntry("PlainLoginModule", {"username": "alice", "password": "s3cret"})


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', "a\\b"),
        (r"'a\'b'", "a'b"),
        ('"a=b;c"', "a=b;c"),
        ('"/* kept */ // too"', "/* kept */ // too"),
        ('""', ""),
        (r'"\t\60"', "\t0"),
    ],
)
def test_quoted_values(quoted: str, value: str) -> None:
    assert parse_jaas(f"M required password={quoted};").options == {"password": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected <login module>"),
        ("M required", "expected <login module>"),
        ('M required password="hush"', "expected <login module>"),
        ('M password="hush";', "expected <login module>"),
        ('M required password="hush"; N required;', "single login module"),
        ("M required password;", "expected options"),
        ("M required password=;", "expected options"),
        ('M required =password"hush";', "expected options"),
        ('M required password="hush;', "is a quote missing"),
        ("M required password=hu#sh;", "is a quote missing"),
    ],
)
def test_refusals_show_nothing_of_the_text(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        parse_jaas(text)
    assert "hu" not in str(refused.value)


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
def test_every_password_can_be_written(password: str) -> None:
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'M required password="{escaped}";').options == {"password": password}
