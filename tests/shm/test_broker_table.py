"""The broker table: what the sender notes of each broker, over its death, and for more brokers than it has entries."""

from __future__ import annotations

from typing import Any

from slab_helpers import deaths_at_stores

from shmaccum._core import BROKERS, Broker
from shmaccum.cluster import Node
from shmaccum.shm.broker_table import BrokerInfo, BrokerJournal, brokers
from shmaccum.shm.layout import BrokerState
from shmaccum.shm.slab import Slab

NODE = Node(3, "kafka-3.example", 9092)


def found_in(slab: Slab) -> list[BrokerInfo]:
    return brokers(slab.words, slab.geometry)


def test_a_new_sender_has_no_connections_and_goes_on_counting(slab: Slab) -> None:
    notes = BrokerJournal(slab).broker(NODE)
    notes.ready()
    notes.in_flight(2, 1.0)
    successor = BrokerJournal(slab)
    (found,) = found_in(slab)
    assert (found.state, found.in_flight, found.waiting_ms) == (BrokerState.IDLE, 0, 0)
    assert (found.connections, found.closed) == (1, 1), "its connections ended with it"
    notes = successor.broker(NODE)
    notes.ready()
    notes.ready()
    (found,) = found_in(slab)
    assert (found.connections, found.logins_again) == (2, 1), "a connection that logs in again is no new one"


def test_addresses_of_bootstrap_servers_come_last(slab: Slab) -> None:
    journal = BrokerJournal(slab)
    for node in (Node(-2, "b", 1), Node(5, "c", 1), Node(-1, "a", 1), Node(0, "d", 1)):
        journal.broker(node)
    assert [str(each) for each in found_in(slab)] == ["broker 0", "broker 5", "broker a:1", "broker b:1"]


def test_connections_to_a_broker_are_shown_as_one(slab: Slab) -> None:
    journal = BrokerJournal(slab)
    further, first = journal.broker(NODE.by_connection(1)), journal.broker(NODE)
    for notes, requests in ((further, 3), (first, 2)):
        notes.sent(100 * requests)
        notes.in_flight(requests, 1.0)
    further.ready()
    first.failed(5)
    (found,) = found_in(slab)
    assert (found.node, found.state, found.ready_connections) == (NODE.id, BrokerState.READY, 1)
    assert (found.in_flight, found.requests, found.bytes_out, found.largest_request) == (5, 2, 500, 300)
    assert (found.failures, found.incident) == (1, 5)


def test_the_broker_without_a_connection_makes_room(slab: Slab) -> None:
    journal = BrokerJournal(slab)
    for number in range(BROKERS):
        notes = journal.broker(Node(number, "host", 9092))
        if number != 17:
            notes.ready()
    journal.broker(Node(1000, "host", 9092))
    assert {each.node for each in found_in(slab)} == {*range(BROKERS), 1000} - {17}


def test_addresses_are_cut_escaped_and_shown_in_brackets(slab: Slab) -> None:
    journal = BrokerJournal(slab)
    journal.broker(Node(1, "x" * 1000, 9092))
    journal.broker(Node(2, "\x1b[31m", 9092))
    journal.broker(Node(3, "::1", 9092))
    first, second, third = (each.address for each in found_in(slab))
    assert first.startswith("xxx")
    assert second == r"\x1b[31m:9092"
    assert third == "[::1]:9092"


def test_damaged_entries_are_left_out_or_harmless(slab: Slab) -> None:
    BrokerJournal(slab).broker(NODE)
    at = slab.geometry.broker(0)
    for word in range(Broker.length):
        before = slab.words[at + word]
        slab.words[at + word] = (1 << 64) - 1
        for each in found_in(slab):
            assert each.address.isprintable()
        notes = BrokerJournal(slab).broker(NODE)
        notes.sent(100)
        notes.answered(100, 1.0, 1.0)
        slab.words[at + word] = before


def test_a_death_over_a_new_entry_shows_it_whole_or_not(slab: Slab) -> None:
    """In a full table, whose entries all are of living connections' brokers; the next sender goes on."""
    journal = BrokerJournal(slab)
    for number in range(BROKERS):
        journal.broker(Node(100 + number, "host", 9092))

    def note_another(words: Any) -> None:
        journal._words = words
        journal.broker(Node(9, "another", 1))

    for _ in deaths_at_stores(slab, note_another):
        found = found_in(slab)
        assert len(found) >= BROKERS - 1
        assert all((each.node, each.address) == (9, "another:1") or each.address == "host:9092" for each in found)
        BrokerJournal(slab).broker(NODE)
        assert (NODE.id, NODE.address) in [(each.node, each.address) for each in found_in(slab)]
