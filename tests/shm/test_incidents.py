"""Incidents: every process reads them whole or not at all, despite hostile text and the sender's death."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slab_helpers import deaths_at_stores

from shmaccum._core import INCIDENTS, Incident, Partition
from shmaccum.errors import (
    AuthenticationError,
    KafkaError,
    KafkaStorageError,
    NetworkError,
    PolicyViolationError,
)
from shmaccum.shm.incidents import IncidentInfo, Incidents, incidents, sender_log
from shmaccum.shm.slab import Slab


@pytest.fixture
def noted(slab: Slab) -> Incidents:
    """Return the incidents of a sender."""
    noted = Incidents(slab)
    noted.begin()
    return noted


def find(noted: Incidents, number: int) -> IncidentInfo:
    """Return an incident that is there."""
    found = noted.find(number)
    assert found is not None
    return found


def test_the_newest_incidents_are_kept(slab: Slab, noted: Incidents) -> None:
    numbers = [noted.note(NetworkError, f"error {number}") for number in range(3 * INCIDENTS)]
    found = [noted.find(number) for number in numbers]
    assert found[: 2 * INCIDENTS] == [None] * 2 * INCIDENTS
    assert [each.text for each in found[2 * INCIDENTS :] if each is not None] == [
        f"error {number}" for number in range(2 * INCIDENTS, 3 * INCIDENTS)
    ]
    assert incidents(slab.words, slab.geometry)[0].text == f"error {3 * INCIDENTS - 1}"
    again = noted.note(NetworkError, "error 0")
    assert again > numbers[-1]
    assert find(noted, again).text == "error 0", "an overwritten one is noted again"


def test_an_incident_lasts_until_its_end_or_the_next_sender(slab: Slab, noted: Incidents) -> None:
    numbers = [noted.note(NetworkError, text, lasts=True, since_ms=1000) for text in ("unreachable", "refused")]
    last = noted.note(PolicyViolationError, "no\x1b[31m\nINFO all is well\u202e")
    current = noted.current()
    assert current is not None
    assert (current.text, current.first_ms, current.lasts) == ("refused", 1000, True)
    noted.end(numbers[1])
    assert [find(noted, number).lasts for number in numbers] == [True, False]
    successor = Incidents(slab)
    successor.begin()
    assert not find(successor, numbers[0]).lasts
    assert successor.note(NetworkError, "another") > last
    assert find(noted, last).text == r"no\x1b[31m\nINFO all is well\u202e", "escapes do not reach a terminal"
    for number in (*numbers, last, last + 1):
        slab.words[slab.geometry.incident(number) + Incident.LAST_MS] -= 3_600_000
    assert noted.current() is None, "they are old"
    assert slab.trouble() == ""


def test_sender_death_leaves_no_torn_incident(slab: Slab, noted: Incidents) -> None:
    """Only the incident that it was writing is missing; the next sender continues."""
    for number in range(INCIDENTS):
        noted.note(KafkaStorageError, f"text {number}")

    def note_another(words: Any) -> None:
        noted._words = words
        noted.note(NetworkError, "another text")

    for _ in deaths_at_stores(slab, note_another):
        found = incidents(slab.words, slab.geometry)
        assert len(found) >= INCIDENTS - 1
        assert all(each.error is KafkaStorageError and each.text.startswith("text ") for each in found)
        successor = Incidents(slab)
        successor.begin()
        number = successor.note(NetworkError, "next")
        assert find(successor, number).text == "next"


@pytest.mark.parametrize(
    "error", [KafkaStorageError, AuthenticationError]
)  # of a broker, and of ours, with a code below 0
def test_a_successor_goes_on_counting(slab: Slab, noted: Incidents, error: type[KafkaError]) -> None:
    number = noted.note(error, "disk full", partition=2)
    successor = Incidents(slab)
    successor.begin()
    assert successor.note(error, "disk full", node=-1) == number
    found = find(successor, number)
    assert (found.count, found.partition, found.node) == (2, None, -1)
    assert successor.note_of_partition(error, "disk full", 3) == number
    assert (find(successor, number).count, find(successor, number).partition) == (3, 3)
    assert slab.words[slab.geometry.partition(3) + Partition.ERROR] == number


def test_a_damaged_incident_is_not_shown_or_harmless(slab: Slab, noted: Incidents) -> None:
    at = slab.geometry.incident(noted.note(NetworkError, "refused", lasts=True))
    whole = bytes(slab.words[at : at + Incident.length])

    @given(st.lists(st.tuples(st.integers(0, Incident.length - 1), st.integers(0, 2**64 - 1)), min_size=1))
    def check(changes: list[tuple[int, int]]) -> None:
        slab.words[at : at + Incident.length] = memoryview(whole).cast("Q")
        for word, value in changes:
            slab.words[at + word] = value
        for each in incidents(slab.words, slab.geometry):
            assert str(each).isprintable()
        assert slab.trouble().isprintable()
        sender_log(slab.words, slab.geometry)

    check()
