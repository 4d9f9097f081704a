"""Incidents: every process reads them whole or not at all, despite hostile text and the sender's death."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import Start

from shmaccum._core import INCIDENTS, Geometry, Incident, Partition, Super
from shmaccum.errors import (
    AuthenticationError,
    BufferExhaustedError,
    KafkaError,
    KafkaStorageError,
    NetworkError,
    PolicyViolationError,
)
from shmaccum.shm.incidents import IncidentInfo, Incidents, incidents, sender_log
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab

GEOMETRY = Geometry(64, 8, max_processes=4, max_topics=4, max_partitions=4)


@pytest.fixture
def geometry() -> Geometry:
    return GEOMETRY


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


def test_an_incident_is_found_by_its_number(slab: Slab, noted: Incidents) -> None:
    number = noted.note(PolicyViolationError, "broker 1 says: not on Sundays")

    found = find(Incidents(slab), number)
    assert (found.error, found.text) == (PolicyViolationError, "broker 1 says: not on Sundays")
    assert found.first_ms == found.last_ms
    assert not found.lasts


def test_there_is_no_incident_0(noted: Incidents) -> None:
    assert noted.find(0) is None


def test_equal_text_is_one_incident(slab: Slab, noted: Incidents) -> None:
    numbers = {noted.note(NetworkError, "refused") for _ in range(1000)}
    other = noted.note(KafkaStorageError, "refused")

    assert len(numbers) == 1
    assert other not in numbers
    assert len(incidents(slab.words, GEOMETRY)) == 2


def test_the_newest_incidents_are_kept(slab: Slab, noted: Incidents) -> None:
    numbers = [noted.note(NetworkError, f"error {number}") for number in range(3 * INCIDENTS)]

    found = [noted.find(number) for number in numbers]
    assert found[: 2 * INCIDENTS] == [None] * 2 * INCIDENTS
    assert [each.text for each in found[2 * INCIDENTS :] if each is not None] == [
        f"error {number}" for number in range(2 * INCIDENTS, 3 * INCIDENTS)
    ]
    assert incidents(slab.words, GEOMETRY)[0].text == f"error {3 * INCIDENTS - 1}"


def test_an_overwritten_incident_is_noted_again(noted: Incidents) -> None:
    first = noted.note(NetworkError, "refused")
    for number in range(INCIDENTS):
        noted.note(NetworkError, f"error {number}")
    again = noted.note(NetworkError, "refused")

    assert again != first
    assert noted.find(first) is None
    assert find(noted, again).text == "refused"


def test_an_incident_lasts_until_its_end(noted: Incidents) -> None:
    number = noted.note(NetworkError, "refused", lasts=True, since_ms=1000)
    noted.note(PolicyViolationError, "not on Sundays")

    current = noted.current()
    assert current is not None
    assert (current.text, current.first_ms, current.lasts) == ("refused", 1000, True)
    noted.end(number)
    found = find(noted, number)
    assert not found.lasts


def test_a_new_sender_ends_lasting_incidents(slab: Slab, noted: Incidents) -> None:
    number = noted.note(NetworkError, "refused", lasts=True)
    successor = Incidents(slab)
    successor.begin()

    found = find(successor, number)
    assert not found.lasts
    assert successor.note(NetworkError, "another") > number


def test_an_old_incident_is_not_current(slab: Slab, noted: Incidents) -> None:
    number = noted.note(NetworkError, "refused")
    slab.words[GEOMETRY.incident(number) + Incident.LAST_MS] -= 3_600_000

    assert noted.current() is None
    assert slab.trouble() == ""


def die_over_an_incident(link: Connection, name: str, stores: int) -> None:
    """Note an incident, and be killed after a number of stores."""
    slab = attach(name, GEOMETRY)
    noted = Incidents(slab)

    class Words:
        left = stores

        def __getitem__(self, index: int) -> int:
            return int(slab.words[index])

        def __setitem__(self, index: int, value: int) -> None:
            if not self.left:
                signal.raise_signal(signal.SIGKILL)
            self.left -= 1
            slab.words[index] = value

    noted._words = Words()
    for number in range(INCIDENTS):
        noted.note(NetworkError, f"another text, {number}")
    link.send("survived")


@pytest.mark.parametrize("stores", range(10))
def test_sender_death_leaves_no_torn_incident(slab: Slab, noted: Incidents, start: Start, stores: int) -> None:
    """Only the incident that it was writing is missing; the next sender continues."""
    for number in range(INCIDENTS):
        noted.note(KafkaStorageError, f"text {number}")
    child = start(die_over_an_incident, slab.name, stores)
    assert child.join() == -signal.SIGKILL
    found = incidents(slab.words, GEOMETRY)
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
    assert slab.words[GEOMETRY.partition(3) + Partition.ERROR] == number


def test_escapes_do_not_reach_a_terminal(noted: Incidents) -> None:
    number = noted.note(PolicyViolationError, "no\x1b[31m\nINFO all is well\u202e")

    found = find(noted, number)
    assert found.text == r"no\x1b[31m\nINFO all is well\u202e"


@given(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 2**64 - 1)), min_size=1))
def test_a_damaged_incident_is_not_shown_or_harmless(changes: list[tuple[int, int]]) -> None:
    slab = attach(f"test{os.getpid()}-damaged", GEOMETRY)
    try:
        noted = Incidents(slab)
        number = noted.note(NetworkError, "refused", lasts=True)
        for word, value in changes:
            slab.words[GEOMETRY.incident(number) + word] = value
        for each in incidents(slab.words, GEOMETRY):
            assert str(each).isprintable()
        assert slab.trouble().isprintable()
        sender_log(slab.words, GEOMETRY)
    finally:
        detach(slab)


def test_the_place_of_the_senders_log_is_readable(slab: Slab, noted: Incidents) -> None:
    assert noted.log() == ""
    noted.note_log("/var/log/sender.log")
    noted.note(NetworkError, "refused")
    assert Incidents(slab).log() == "/var/log/sender.log"


def test_the_first_accepted_connection_is_kept(slab: Slab, noted: Incidents) -> None:
    assert not noted.has_been_let_in
    noted.let_in()
    first = slab.words[Super.LET_IN_MS]
    noted.let_in()
    assert Incidents(slab).has_been_let_in
    assert slab.words[Super.LET_IN_MS] == first


def test_trouble_names_the_last_error(slab: Slab, noted: Incidents) -> None:
    noted.note(BufferExhaustedError, "")
    assert slab.trouble().startswith("; last error: BufferExhaustedError: No memory became free")
