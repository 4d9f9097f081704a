"""The waiter queue against a plain list of tickets."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shmaccum.pool.waiters import WaiterQueue
from shmaccum.shm.layout import INCARNATION_SHIFT, OWNER_SHIFT, WAITERS, Geometry, Super
from shmaccum.shm.memory import SlabMemory

GEOMETRY = Geometry(8, 1, max_processes=1, max_topics=1, max_partitions=1)


def tag(entry: int, incarnation: int) -> int:
    return entry << OWNER_SHIFT | incarnation << INCARNATION_SHIFT


tags = st.builds(tag, st.integers(0, 1023), st.integers(0, 0xFFFF))


@pytest.fixture
def words() -> memoryview:
    return memoryview(bytearray(GEOMETRY.total_size)).cast("Q")


@pytest.fixture
def queue(words: memoryview) -> WaiterQueue:
    return WaiterQueue("queue", SlabMemory(words, GEOMETRY), GEOMETRY)


class QueueMachine(RuleBasedStateMachine):
    """Joins and leaves, at the head and in the middle, in a queue and in a list."""

    @initialize(drawn=st.sampled_from([0, WAITERS - 2, 5 * WAITERS - 1, 2**40]))
    def make(self, drawn: int) -> None:
        self.words = memoryview(bytearray(GEOMETRY.total_size)).cast("Q")
        self.words[Super.WAITER_HEAD] = self.words[Super.WAITER_TAIL] = drawn
        self.queue = WaiterQueue("queue", SlabMemory(self.words, GEOMETRY), GEOMETRY)
        self.next_ticket = drawn
        self.waiting: dict[int, int] = {}  # by ticket, in order of arrival
        self.wanted: dict[int, int] = {}
        self.left: list[int] = []
        self.passed_over: set[int] = set()

    @rule(owner=tags, patience_s=st.floats(0, 1e6), slots=st.integers(1, 9))
    def join(self, owner: int, patience_s: float, slots: int) -> None:
        ticket = self.queue.join(owner, 1000.0, patience_s, slots)
        assert ticket == self.next_ticket
        self.wanted[ticket] = slots
        self.next_ticket += 1
        self.waiting[ticket] = owner

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)), "ticket")
        self.queue.leave(ticket)
        del self.waiting[ticket]
        self.passed_over.discard(ticket)
        self.left.append(ticket)

    @precondition(lambda self: set(self.waiting) - self.passed_over)
    @rule()
    def pass_over(self) -> None:
        self.passed_over.add(self.queue.head())
        self.queue.pass_over(self.queue.head())

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)), "ticket")
        self.queue.look(ticket)
        self.passed_over.discard(ticket)

    @precondition(lambda self: self.left)
    @rule(data=st.data())
    def look_when_it_has_been_taken_away(self, data: st.DataObject) -> None:
        self.queue.look(data.draw(st.sampled_from(self.left), "ticket"))

    @precondition(lambda self: self.left)
    @rule(data=st.data())
    def leave_again(self, data: st.DataObject) -> None:
        self.queue.leave(data.draw(st.sampled_from(self.left), "ticket"))

    @rule()
    def die_over_joining(self) -> None:
        """A cell is stored before the tail moves past it: after a death in between, the next join reuses it."""
        self.words[GEOMETRY.waiter(self.next_ticket % WAITERS)] = tag(7, 7) | 1

    @invariant()
    def it_is_like_the_list(self) -> None:
        if hasattr(self, "queue"):
            assert len(self.queue) == len(self.waiting)
            assert self.queue.is_empty() == (not self.waiting)
            assert self.queue.head() == min(set(self.waiting) - self.passed_over, default=-1)
            served = sum(self.wanted[ticket] for ticket in set(self.waiting) - self.passed_over)
            for free in (0, served - 1, served, served + 1, 99):
                assert self.queue.spare(max(0, free)) == max(0, free - served)
            for ticket, owner in self.waiting.items():
                assert self.queue.owner_tag(ticket) == owner
                assert self.queue.owner_entry(ticket) == owner >> OWNER_SHIFT & 0xFFFF


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=25, stateful_step_count=40)


def test_an_owner_of_all_zeros_has_a_place_as_well(queue: WaiterQueue) -> None:
    ticket = queue.join(0, 0.0, 0.0)

    assert len(queue) == 1
    assert queue.head() == ticket
    assert queue.owner_tag(ticket) == 0


def test_a_full_ring_gives_no_ticket_until_its_head_leaves(queue: WaiterQueue) -> None:
    tickets = [queue.join(tag(1, 1), 0.0, 10.0) for _ in range(WAITERS)]
    assert tickets == list(range(WAITERS))
    assert queue.join(tag(2, 1), 0.0, 10.0) == -1

    queue.leave(tickets[1])
    assert queue.join(tag(2, 1), 0.0, 10.0) == -1

    queue.leave(tickets[0])
    assert queue.head() == 2
    assert [queue.join(tag(2, 1), 0.0, 10.0) for _ in range(3)] == [WAITERS, WAITERS + 1, -1]


def test_a_late_leave_does_not_remove_another_waiter(queue: WaiterQueue) -> None:
    for ticket in range(WAITERS):
        queue.join(tag(1, 1), 0.0, 10.0)
        queue.leave(ticket)
    successor = queue.join(tag(2, 1), 0.0, 10.0)
    assert successor == WAITERS

    queue.leave(0)  # it had been removed, and another waiter has its cell

    assert queue.owner_tag(successor) == tag(2, 1)
    assert len(queue) == 1


def test_the_next_leave_repairs_a_death_during_leave(words: memoryview, queue: WaiterQueue) -> None:
    first, second = queue.join(tag(1, 1), 0.0, 10.0), queue.join(tag(2, 1), 0.0, 10.0)
    words[GEOMETRY.waiter(first)] = 0  # where a death interrupts `leave`
    assert (queue.head(), queue.owner_tag(first), len(queue)) == (second, 0, 1)

    queue.leave(first)

    assert queue.head() == second
    assert words[Super.WAITER_HEAD] == second


@pytest.mark.parametrize("now_s", [0.0, 0.9, 12345.6, 2.0**24 - 3, 2.0**24 + 5, 7 * 2.0**24 - 0.5])
@pytest.mark.parametrize("patience_s", [0.0, 0.01, 1.0, 59.99, 3600.0, 1e6])
def test_a_waiter_is_overdue_after_its_deadline_and_never_before(
    queue: WaiterQueue, now_s: float, patience_s: float
) -> None:
    ticket = queue.join(tag(3, 9), now_s, patience_s)
    deadline = now_s + patience_s

    assert not queue.is_overdue(ticket, now_s)
    assert not queue.is_overdue(ticket, deadline)
    assert not queue.is_overdue(ticket, max(now_s, deadline - 100))
    assert queue.is_overdue(ticket, deadline + 3)
    assert queue.is_overdue(ticket, deadline + 100_000)
    assert queue.owner_tag(ticket) == tag(3, 9)


def test_an_endless_wait_is_not_overdue_for_weeks(queue: WaiterQueue) -> None:
    ticket = queue.join(tag(3, 9), 100.0, 2.0**63)

    assert not queue.is_overdue(ticket, 100.0 + 40 * 86400)


def test_a_waiter_without_a_look_for_a_second_is_absent(queue: WaiterQueue) -> None:
    ticket = queue.join(tag(3, 9), 100.0, 60.0)

    assert not queue.is_absent(ticket, 200.0), "not watched before"
    assert not queue.is_absent(ticket, 200.9)
    assert queue.is_absent(ticket, 201.1)
    queue.look(ticket)
    assert not queue.is_absent(ticket, 201.2)
    for look in range(130):
        queue.look(ticket)
        assert not queue.is_absent(ticket, 201.3 + look)
    assert queue.is_absent(ticket, 201.3 + 129 + 1.1)
    assert not queue.is_overdue(ticket, 159.0)


def test_a_new_head_is_watched_from_its_own_start(queue: WaiterQueue) -> None:
    first, second = queue.join(tag(1, 1), 0.0, 60.0), queue.join(tag(2, 1), 0.0, 60.0)
    assert not queue.is_absent(first, 10.0)

    queue.leave(first)

    assert not queue.is_absent(second, 20.0)
    assert queue.is_absent(second, 21.5)


def test_enough_slots_rises_after_wakeups_and_falls_after_vain_waits() -> None:
    geometry = Geometry(8, 100, max_processes=1, max_topics=1, max_partitions=1)
    words = memoryview(bytearray(geometry.total_size)).cast("Q")
    queue = WaiterQueue("queue", SlabMemory(words, geometry), geometry)
    assert queue.is_enough(0)

    enough = []
    for was_woken in (True,) * 6 + (False,) * 5:
        queue.learn(was_woken=was_woken)
        enough.append(words[Super.ENOUGH_SLOTS])

    assert enough == [1, 2, 4, 8, 12, 12, 6, 3, 1, 0, 0]
    assert queue.is_enough(0)


def test_one_slot_is_enough_in_a_small_slab(words: memoryview, queue: WaiterQueue) -> None:
    for _ in range(10):
        queue.learn(was_woken=True)

    assert words[Super.ENOUGH_SLOTS] == 1
    assert queue.is_enough(1)


def test_the_head_is_woken_once_for_each_of_its_looks(words: memoryview, queue: WaiterQueue) -> None:
    words[Super.ENOUGH_SLOTS] = 2
    assert queue.to_be_woken(9) == -1, "nobody waits"
    first, second = queue.join(tag(1, 1), 0.0, 10.0), queue.join(tag(2, 1), 0.0, 10.0)

    assert [queue.to_be_woken(free) for free in (1, 2, 3, 4)] == [-1, 1, -1, -1]
    queue.look(second)
    assert queue.to_be_woken(5) == -1
    queue.look(first)
    assert [queue.to_be_woken(free) for free in (1, 5, 6)] == [-1, 1, -1]
    queue.leave(first)
    assert [queue.to_be_woken(6) for _ in range(2)] == [2, -1]
    queue.pass_over(second)
    assert queue.to_be_woken(6) == -1


def test_the_head_is_woken_for_as_many_slots_as_it_waits_for(queue: WaiterQueue) -> None:
    queue.join(tag(1, 1), 0.0, 10.0, 3)
    queue.join(tag(2, 1), 0.0, 10.0)

    assert [queue.to_be_woken(free) for free in (1, 2, 3)] == [-1, -1, 1]
