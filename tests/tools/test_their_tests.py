"""Tests of other projects, with our producers imported instead of theirs."""

from __future__ import annotations

import ast

import pytest
from runs import run_python

from tools.their_tests import _SURROUNDINGS, moved

THEIRS = """from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.serialization import StringSerializer
from tests.common import TestConsumer
from test.testutil import random_string
"""


def test_only_the_import_of_producers_changes() -> None:
    assert moved(THEIRS).splitlines() == [
        "from conftest import Consumer, KafkaError, Producer",
        "from confluent_kafka.serialization import StringSerializer",
        "from conftest import Consumer as TestConsumer",
        "from conftest import random_string",
    ]


@pytest.mark.parametrize("project", _SURROUNDINGS)
def test_the_surroundings_are_python(project: str) -> None:
    ast.parse(_SURROUNDINGS[project])


def test_something_that_is_no_checkout_is_refused() -> None:
    done = run_python("-m", "tools.their_tests", "tests")
    assert done.returncode == 2
    assert "is a checkout of neither confluent-kafka nor kafka-python" in done.stderr
