"""Answers are understood as the library understands them, whether they are read here or by it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmaccum._core import ProduceBatch, read_stored
from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import NetworkError
from shmaccum.sender.kafka.produce_request import by_partition
from shmaccum.sender.kafka.produce_response import Answers, _decode_any, decode_answers
from tools.support.messages import encoded, produced

NODE = Node(1, "here", 9092)


def frame(version: int, results: dict[TopicPartition, dict[str, Any]], throttle_ms: int = 0, **tagged: Any) -> bytes:
    """Return the response that says of each partition what is given, without its size."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), result in results.items():
        topics.setdefault(topic, []).append({"index": partition, "base_offset": 7} | result)
    return encoded(produced(topics, throttle_time_ms=throttle_ms, **tagged), version, 5)[4:]


def batch(to: TopicPartition) -> ProduceBatch:
    return ProduceBatch(to, (memoryview(b""),), 1, 2, -1, -1, -1, -1, 0)


ONE = by_partition([batch(TopicPartition("t", 0))])


def said(answers: Answers) -> tuple[Any, ...]:
    """Return all that answers say, in whatever order."""
    responses, hints, throttle_ms = answers
    places = {
        each.batch: (each.base_offset, each.log_append_time_ms, each.error, each.message, each.invalid_records)
        for each in responses
    }
    assert len(places) == len(responses)
    return places, hints, throttle_ms


PARTITIONS = st.builds(TopicPartition, st.text("abc-", min_size=1, max_size=249), st.integers(0, 2**31 - 1))
PLAIN = st.fixed_dictionaries(
    {"base_offset": st.integers(-1, 2**63 - 1), "log_append_time_ms": st.integers(-1, 2**47 - 1)}
)


@settings(max_examples=60)
@given(
    version=st.integers(9, 12),
    results=st.dictionaries(PARTITIONS, PLAIN, min_size=1, max_size=50),
    throttle_ms=st.integers(0, 2**31 - 1),
)
def test_plain_answers(version: int, results: dict[TopicPartition, dict[str, Any]], throttle_ms: int) -> None:
    """They are read here, and as the library would."""
    data = frame(version, results, throttle_ms)
    batches = by_partition(batch(to) for to in reversed(results))
    assert read_stored(data, batches) is not None
    answers = decode_answers(version, data, batches, NODE)
    assert said(answers) == said(_decode_any(version, data, batches, NODE))
    assert answers[1:] == ([], throttle_ms)
    assert {answer.batch.topic_partition: answer.base_offset for answer in answers[0]} == {
        to: result["base_offset"] for to, result in results.items()
    }


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([("a", 0)], id="more than was asked"),
        pytest.param([("a", 0), ("a", 2)], id="another partition"),
        pytest.param([("a", 0), ("a", 1), ("b", 0)], id="without a topic"),
        pytest.param([("b", 0), ("b", 1)], id="another topic"),
    ],
)
def test_an_answer_for_others_is_not_taken_for_theirs(batches: list[tuple[str, int]]) -> None:
    data = frame(12, {TopicPartition("a", number): {"base_offset": number} for number in range(2)})
    asked = by_partition(batch(TopicPartition(*each)) for each in batches)
    assert read_stored(data, asked) is None
    if batches == [("a", 0)]:
        assert [answer.base_offset for answer in decode_answers(12, data, asked, NODE)[0]] == [0]
    else:
        with pytest.raises(NetworkError, match="left a batch"):
            decode_answers(12, data, asked, NODE)


@pytest.mark.parametrize("asked", [[("a", 0), ("a", 1)], [("a", 0), ("b", 0)]])
def test_what_is_answered_twice_does_not_stand_for_another(asked: list[tuple[str, int]]) -> None:
    """One partition, or one topic with it."""
    result = {"index": 0, "base_offset": 7}
    answer = produced({"a": [result, result] if asked[1][0] == "a" else [result]})
    answer.responses *= 2 if asked[1][0] == "b" else 1
    data = encoded(answer, 12, 5)[4:]
    with pytest.raises(NetworkError, match="left a batch"):
        decode_answers(12, data, by_partition(batch(TopicPartition(*each)) for each in asked), NODE)


@given(st.data())
def test_what_is_cut_short_is_refused(data: st.DataObject) -> None:
    """Wherever it is cut."""
    whole = frame(12, {TopicPartition("topic", number): {} for number in range(3)})
    cut = whole[: data.draw(st.integers(4, len(whole) - 1))]
    with pytest.raises(NetworkError):
        decode_answers(12, cut, by_partition([batch(TopicPartition("topic", 0))]), NODE)
