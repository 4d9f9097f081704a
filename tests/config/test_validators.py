import pytest

from shmaccum.config.validators import DISTINCT, Validator, at_least, between, matching, one_of


@pytest.mark.parametrize(
    ("validator", "good", "bad", "words"),
    [
        (at_least(0), [0, 1, 2**70], [-1], "at least 0"),
        (between(1, 3), [1, 2, 3], [0, 4], "between 1 and 3"),
        (one_of("a", "b"), ["a", "b"], ["", "A", "a, b"], "one of a, b"),
        (one_of("log"), ["log"], ["kafka"], "log"),
        (matching("[a-z]+", "small letters"), ["a", "xyz"], ["", "a1", "1a", "a\n"], "small letters"),
        (DISTINCT, [(), (1, 2), ([], [1])], [(1, 1), ([], [])], "a list without duplicates"),
    ],
)
def test_allows_what_its_words_say(
    validator: Validator[object], good: list[object], bad: list[object], words: str
) -> None:
    assert [value for value in good if not validator.allows(value)] == []
    assert [value for value in bad if validator.allows(value)] == []
    assert validator.allowed == words
