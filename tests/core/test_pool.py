"""The core's pool: one owner for each slot, fair waiting, and nothing lost by a death at any step."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import pytest
from core_slabs import ABSENT_S, DYING, LIVING, Damaged, Slab, deaths, owner
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shmaccum._core import LOCK_BUSY, LOCK_REJOIN, LOCK_TAKEN, OWNER_SHIFT, WAITERS, Buffer, MemoryTicket
from tools.support.oracle import violations

# --- slots ----------------------------------------------------------------------------------------


class PoolMachine(RuleBasedStateMachine):
    """Allocates, frees and grows; other processes die in any of it."""

    core: ModuleType
    slab: Slab

    @initialize(slot_count=st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 65, 130])))
    def make(self, slot_count: int) -> None:
        self.slab = Slab(slot_count, self.core)
        self.held: list[Buffer] = []

    def teardown(self) -> None:
        if hasattr(self, "slab"):
            self.slab.close()

    def free(self) -> int:
        return self.slab.slot_count - sum(len(self.slab.chain(buffer)) for buffer in self.held)

    @rule(data=st.data(), most=st.integers(1, 70))
    def take(self, data: st.DataObject, most: int) -> None:
        count = data.draw(st.one_of(st.integers(1, 5), st.integers(1, self.slab.slot_count + 1)), "count")
        free = self.free()
        taken = self.slab.take(count, most)
        assert len(taken) == min(most, free // count)
        assert all(len(self.slab.chain(buffer)) == buffer.slots == count for buffer in taken)
        self.held += taken

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free_some(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.held), min_size=1, unique=True), "some")
        assert self.slab.pool.free(*some) == (LOCK_TAKEN, -1, len(some))
        assert self.slab.pool.free(*some) == (LOCK_TAKEN, -1, 0)
        self.held = [buffer for buffer in self.held if buffer not in some]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), is_stale=st.booleans())
    def grow(self, data: st.DataObject, is_stale: bool) -> None:
        buffer = data.draw(st.sampled_from(self.held), "which")
        slots, free = len(self.slab.chain(buffer)), self.free()
        handle = self.slab.core.Buffer(buffer.slot, slots - is_stale, buffer.generation)
        grew = self.slab.pool.grow(handle)[1]
        assert grew == (free > 0 and not is_stale)
        assert len(self.slab.chain(buffer)) == slots + grew == handle.slots + is_stale

    @rule(count=st.integers(1, 5), step=st.integers(1, 90))
    def die_over_allocating(self, count: int, step: int) -> None:
        self.slab.die_at(step, lambda: self.slab.pool.allocate([], count))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), step=st.integers(1, 60))
    def die_over_freeing(self, data: st.DataObject, step: int) -> None:
        some = data.draw(st.lists(st.sampled_from(self.held), min_size=1, unique=True), "some")
        self.slab.die_at(step, lambda: self.slab.pool.free(*some))
        self.held = [buffer for buffer in self.held if self.slab.pool.is_taken(buffer)]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), step=st.integers(1, 60))
    def die_over_growing(self, data: st.DataObject, step: int) -> None:
        buffer = data.draw(st.sampled_from(self.held), "which")
        slots = len(self.slab.chain(buffer))
        handle = self.slab.core.Buffer(buffer.slot, slots, buffer.generation)
        self.slab.die_at(step, lambda: self.slab.pool.grow(handle))
        assert len(self.slab.chain(buffer)) in (slots, slots + 1)

    @rule(count=st.integers(1, 5), step=st.integers(1, 200))
    def die_over_reclaiming(self, count: int, step: int) -> None:
        self.slab.be(DYING)
        self.slab.take(count, 2)
        self.slab.be(LIVING)
        self.slab.die_at(step, lambda: self.slab.pool.reclaim([owner(DYING)], 0.0, ABSENT_S))

    @invariant()
    def each_slot_has_one_owner_or_is_free(self) -> None:
        assert violations(self.slab.segment) == []
        chains = [slot for buffer in self.held for slot in self.slab.chain(buffer)]
        assert len(set(chains)) == len(chains)
        assert self.slab.pool.free_slots == self.free()
        assert all(map(self.slab.pool.is_taken, self.held))

    @invariant()
    def as_many_slots_as_are_free_serve_a_request(self) -> None:
        if self.free():
            (buffer,) = self.slab.take(self.free())
            assert self.slab.pool.free_slots == 0
            self.slab.pool.free(buffer)


def test_random_operations_and_deaths_lose_no_slot(stepping: ModuleType) -> None:
    class Machine(PoolMachine):
        core = stepping

    case = Machine.TestCase()
    case.settings = settings(
        max_examples=10, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case.runTest()


def fragmented(core: ModuleType) -> tuple[Slab, list[Buffer]]:
    """Return a slab of 7 slots with every other one taken by this process, and these."""
    slab = Slab(7, core)
    buffers = slab.take(1, 7)
    slab.pool.free(*buffers[1::2])
    return slab, buffers[::2]


OPERATIONS: dict[str, Callable[[Slab, list[Buffer]], object]] = {
    "allocate": lambda slab, held: slab.take(1),
    "allocate several": lambda slab, held: slab.take(1, 3),
    "allocate a chain": lambda slab, held: slab.take(3),
    "free": lambda slab, held: slab.pool.free(held[1]),
    "grow and free": lambda slab, held: (slab.pool.grow(held[1]), slab.pool.free(held[1])),
    "grow twice": lambda slab, held: (slab.pool.grow(held[1]), slab.pool.grow(held[1])),
    "wait and leave": lambda slab, held: slab.pool.leave(slab.wait(4), 5),
    "wait and get": lambda slab, held: (ticket := slab.wait(4), slab.pool.free(held[1]), slab.look(ticket)),
    "wait and go on": lambda slab, held: slab.pool.leave(slab.wait(4), 5, True),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_death_at_any_step_leaves_a_sound_pool(stepping: ModuleType, operation: str) -> None:
    held: list[Buffer] = []

    def make() -> Slab:
        slab, held[:] = fragmented(stepping)
        return slab

    for slab, _ in deaths(make, lambda slab: OPERATIONS[operation](slab, held)):
        slab.take_over()
        assert violations(slab.segment) == []
        assert slab.pool.waiters() == []
        slab.pool.free(*held)
        assert slab.pool.free_slots == 7
        assert slab.take(7)


# --- locks and damage -----------------------------------------------------------------------------


def test_nothing_changes_without_the_lock_or_a_ticket() -> None:
    slab = Slab(4)
    (held,) = slab.take(1)
    before = bytes(slab.segment)
    slab.be(2)
    assert slab.lock.acquire_now() == LOCK_TAKEN
    slab.be(LIVING)
    ticket, taken = MemoryTicket(1, 0.0, 1.0), [held]
    assert slab.pool.allocate(taken, 1) == (LOCK_BUSY, False)
    assert slab.pool.free(held) == (LOCK_BUSY, -1, 0)
    assert slab.pool.grow(held) == (LOCK_BUSY, False)
    assert slab.pool.look(ticket, taken, None, (), 0.0, ABSENT_S) == (LOCK_BUSY, -1)
    assert slab.pool.leave(ticket, 1) == (LOCK_BUSY, -1)
    assert slab.pool.reclaim([], 0.0, ABSENT_S) == (LOCK_BUSY, -1, 0)
    assert (ticket.number, taken) == (-1, [held])
    slab.be(2)
    slab.lock.release()
    slab.be(LIVING)
    assert bytes(slab.segment) == before
    slab.segment.leave()
    assert slab.pool.allocate([], 1) == (LOCK_REJOIN, 0)
    assert slab.pool.free() == (LOCK_REJOIN, -1, 0)


@pytest.mark.parametrize(("head", "tail"), [(2, 1), (0, WAITERS + 1), ((1 << 62) + 1, (1 << 62) + 1), (1 << 63, 1)])
def test_damaged_ends_of_the_queue_are_an_error(head: int, tail: int) -> None:
    slab = Slab(4)
    (held,) = slab.take(1)
    slab.set("superblock", "waiter_head", head)
    slab.set("superblock", "waiter_tail", tail)
    ticket = MemoryTicket(1, 0.0, 1.0)
    calls: list[Callable[[], object]] = [
        lambda: slab.take(1),
        lambda: slab.look(ticket),
        lambda: slab.pool.leave(ticket, 1),
        lambda: slab.pool.grow(held),
        lambda: slab.pool.reclaim([], 0.0, ABSENT_S),
        lambda: slab.pool.free(held),
        slab.pool.waiters,
        slab.pool.is_exhausted,
    ]
    for call in calls:
        with pytest.raises(Damaged, match=f"begins at ticket {head} and ends at {tail}"):
            call()
        assert slab.lock.owner == 0
    assert not slab.pool.is_taken(held)


@pytest.mark.parametrize("slots", [0, 5, 1 << 63])
def test_a_damaged_number_of_slots_can_be_freed(slots: int) -> None:
    slab = Slab(4)
    (held,) = slab.take(3)
    slab.set("headers", "slots", slots, held.slot)
    assert slab.pool.grow(held) == (LOCK_TAKEN, False)
    slab.pool.free(held)
    assert slab.pool.reclaim([], 0.0, ABSENT_S) == (LOCK_TAKEN, -1, 0)
    assert slab.pool.free_slots == 4
    assert slab.take(4)


def test_an_entry_that_does_not_exist_is_not_woken() -> None:
    slab = Slab(1)
    (held,) = slab.take(1)
    slab.wait(1)
    slab.set("waiters", "holder", 999 << OWNER_SHIFT | 1 << 24 | 1)
    assert slab.pool.free(held) == (LOCK_TAKEN, -1, 1)


# --- growth ---------------------------------------------------------------------------------------


def test_a_batch_grows_wherever_a_slot_is_free_and_no_process_waits() -> None:
    slab = Slab(5)
    first, second, third = slab.take(1, 3)
    assert slab.pool.grow(first) == (LOCK_TAKEN, True)
    assert slab.pool.grow(second) == (LOCK_TAKEN, True)
    assert slab.pool.grow(third) == (LOCK_TAKEN, False)
    assert [slab.chain(buffer) for buffer in (first, second, third)] == [[0, 3], [1, 4], [2]]
    ticket = slab.wait(4)
    assert slab.pool.free(first)[2] == 1
    assert slab.pool.grow(second) == (LOCK_TAKEN, False)
    slab.pool.leave(ticket, 0)
    assert slab.pool.grow(second) == (LOCK_TAKEN, True)
    assert slab.chain(second) == [1, 4, 0]
    assert second.slots == 3


def test_a_batch_does_not_grow_after_another_process_grew_or_freed_it() -> None:
    slab = Slab(4)
    (buffer,) = slab.take(1)
    stale = Buffer(buffer.slot, buffer.slots, buffer.generation)
    assert slab.pool.grow(buffer) == (LOCK_TAKEN, True)
    assert slab.pool.grow(stale) == (LOCK_TAKEN, False)
    slab.pool.free(buffer)
    assert slab.pool.grow(buffer) == (LOCK_TAKEN, False)
    assert slab.take(2)[0].slot == buffer.slot
    assert slab.pool.grow(buffer) == (LOCK_TAKEN, False)


# --- the waiter queue -----------------------------------------------------------------------------


class QueueMachine(RuleBasedStateMachine):
    """Processes wait, look, leave, are stopped and die; against a list in the order of arrival."""

    @initialize(drawn=st.sampled_from([0, WAITERS - 2, 5 * WAITERS - 1, 2**40]))
    def make(self, drawn: int) -> None:
        self.slab = Slab(6)
        for name in ("waiter_head", "waiter_tail"):
            self.slab.set("superblock", name, drawn)
        self.next_number = drawn
        self.processes = 0
        self.waiting: list[tuple[int, MemoryTicket]] = []
        """The incarnation of each waiter, and its ticket."""
        self.passed_over: set[int] = set()
        self.held: list[Buffer] = []
        self.now_s = 100.0

    def free(self) -> int:
        return 6 - sum(buffer.slots for buffer in self.held)

    def served(self) -> list[MemoryTicket]:
        return [ticket for _, ticket in self.waiting if ticket.number not in self.passed_over]

    def look(self, process: int, ticket: MemoryTicket) -> None:
        """Look, and leave if there was memory; a waiter looks often enough to be present."""
        self.slab.be(2, process)
        is_turn = self.served()[:1] == [ticket] and ticket.slots <= self.free()
        taken = self.slab.look(ticket, self.now_s)
        assert [buffer.slots for buffer in taken] == ([ticket.slots] if is_turn else [])
        if taken:
            self.held += taken
            self.slab.pool.leave(ticket, 7)
            self.waiting.remove((process, ticket))

    @rule(slots=st.integers(1, 6), timeout_s=st.floats(1000, 1e6))
    def join(self, slots: int, timeout_s: float) -> None:
        self.processes += 1
        self.slab.be(2, self.processes)
        spare = self.free() - sum(ticket.slots for ticket in self.served())
        taken = self.slab.take(slots)
        assert [buffer.slots for buffer in taken] == ([slots] if slots <= spare else [])
        self.held += taken
        if taken:
            return
        ticket = MemoryTicket(slots, self.now_s, timeout_s)
        number, self.next_number = self.next_number, self.next_number + 1
        is_turn = not self.served() and slots <= self.free()
        got = self.slab.look(ticket, self.now_s)
        assert (ticket.number, bool(got)) == (number, is_turn)
        if got:
            self.held += got
            self.slab.pool.leave(ticket, 7)
        else:
            self.waiting.append((self.processes, ticket))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def look_again(self, data: st.DataObject) -> None:
        process, ticket = data.draw(st.sampled_from(self.waiting), "which")
        self.passed_over.discard(ticket.number)
        self.look(process, ticket)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        process, ticket = data.draw(st.sampled_from(self.waiting), "which")
        self.slab.be(2, process)
        self.passed_over.discard(ticket.number)
        self.slab.pool.leave(ticket, 7)
        assert ticket.number == -1
        self.waiting.remove((process, ticket))

    @precondition(lambda self: self.served())
    @rule()
    def stop_the_first(self) -> None:
        """Others pass over those at the head that do not look."""
        self.slab.be(LIVING)
        self.slab.pool.reclaim([], self.now_s, ABSENT_S)
        self.now_s += 1.1
        self.slab.pool.reclaim([], self.now_s, ABSENT_S)
        before = [ticket.number for ticket in self.served()]
        self.passed_over = {number for number, _, is_passed_over in self.slab.pool.waiters() if is_passed_over}
        left = [ticket.number for ticket in self.served()]
        assert left in (before[1:], before[2:])

    @precondition(lambda self: self.served())
    @rule()
    def kill_the_head(self) -> None:
        self.slab.be(LIVING)
        dead = next(each for each in self.waiting if each[1] is self.served()[0])
        self.slab.pool.reclaim([owner(2, dead[0])], self.now_s, math.inf)
        self.waiting.remove(dead)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free_one(self, data: st.DataObject) -> None:
        buffer = self.held.pop(data.draw(st.integers(0, len(self.held) - 1), "which"))
        assert self.slab.pool.free(buffer)[2] == 1

    @invariant()
    def it_is_like_the_list(self) -> None:
        assert self.slab.pool.waiters() == [
            (ticket.number, owner(2, process), ticket.number in self.passed_over) for process, ticket in self.waiting
        ]
        served = sum(ticket.slots for ticket in self.served())
        assert self.slab.pool.is_exhausted() == (bool(self.waiting) and self.free() <= served)
        assert violations(self.slab.segment) == []


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)


@pytest.fixture
def slab() -> Slab:
    """Return a slab whose one slot is taken."""
    slab = Slab(1)
    slab.take(1)
    return slab


def test_a_full_ring_gives_no_ticket_until_its_head_leaves(slab: Slab) -> None:
    tickets = [slab.wait(1) for _ in range(WAITERS)]
    assert [ticket.number for ticket in tickets] == list(range(WAITERS))
    assert slab.wait(1).number == -1
    slab.pool.leave(tickets[1], 0)
    assert slab.wait(1).number == -1
    slab.pool.leave(tickets[0], 0)
    assert [slab.wait(1).number for _ in range(3)] == [WAITERS, WAITERS + 1, -1]


def test_a_late_leave_does_not_remove_another_waiter(slab: Slab) -> None:
    slab.be(3)
    late = slab.wait(1)
    slab.pool.reclaim([owner(3)], 0.0, ABSENT_S)
    for _ in range(WAITERS - 1):
        slab.pool.leave(slab.wait(1), 0)
    slab.be(2)
    assert slab.wait(1).number == WAITERS
    slab.be(3)
    slab.look(late)
    slab.pool.leave(late, 0)
    assert slab.pool.waiters() == [(WAITERS, owner(2), False)]


def test_all_the_dead_that_had_an_entry_are_removed(slab: Slab) -> None:
    """One after the other; none of them keeps those behind it waiting."""
    for incarnation in (1, 2, 3):
        slab.be(3, incarnation)
        slab.wait(1)
    slab.be(2)
    slab.wait(1)
    slab.pool.reclaim([owner(3, incarnation) for incarnation in (2, 1, 3)], 0.0, ABSENT_S)
    assert slab.pool.waiters() == [(3, owner(2), False)]


@pytest.mark.parametrize("now_s", [0.0, 0.9, 12345.6, 2.0**24 - 3, 2.0**24 + 5, 7 * 2.0**24 - 0.5])
def test_a_waiter_is_overdue_after_its_deadline_and_never_before(slab: Slab, now_s: float) -> None:
    for patience_s in (0.0, 0.01, 1.0, 59.99, 3600.0, 1e6):
        slab.wait(1, now_s, patience_s)
        deadline = now_s + patience_s
        for now in (now_s, deadline, max(now_s, deadline - 100)):
            slab.pool.reclaim([], now, math.inf)
            assert len(slab.pool.waiters()) == 1
        slab.pool.reclaim([], deadline + 3, math.inf)
        assert slab.pool.waiters() == []
    slab.wait(1, now_s, math.inf)
    slab.pool.reclaim([], now_s + 40 * 86400, math.inf)
    assert len(slab.pool.waiters()) == 1, "an endless wait is not overdue for weeks"


def test_a_look_with_an_earlier_time_passes_over_no_waiter(slab: Slab) -> None:
    """Its thread waited for the lock meanwhile, and another one of its process looked."""
    slab.be(2)
    slab.wait(1, 100.0)
    slab.be(3)
    second = slab.wait(1, 100.2)
    slab.look(second, 100.1)
    assert [is_passed_over for _, _, is_passed_over in slab.pool.waiters()] == [False, False]


def test_the_head_is_woken_for_enough_slots_and_once_for_each_of_its_looks() -> None:
    slab = Slab(12)
    held = slab.take(1, 12)
    slab.set("superblock", "enough_slots", 2)

    def free_one() -> int:
        waiter: int = slab.pool.free(held.pop())[1]
        return waiter

    assert free_one() == -1, "no process waits"
    assert slab.take(1)
    slab.be(2)
    first = slab.wait(3)
    slab.be(3)
    second = slab.wait(1)
    slab.be(LIVING)
    assert [free_one() for _ in range(4)] == [-1, -1, 2, -1]
    slab.be(3)
    slab.look(second)
    slab.be(LIVING)
    assert free_one() == -1
    slab.be(2)
    assert slab.look(first)
    slab.pool.leave(first, 1234)
    assert [slab.get("processes", name, 2) for name in ("waits", "wait_ns")] == [1, 1234]
    slab.be(LIVING)
    assert [free_one() for _ in range(2)] == [3, -1]


# --- turns ----------------------------------------------------------------------------------------


@pytest.fixture
def scarce() -> tuple[Slab, list[Buffer]]:
    """Return a slab where a turn has 4 slots, and all its slots, taken by this process."""
    slab = Slab(32)
    return slab, slab.take(1, 32)


def test_a_waiter_that_was_served_takes_more_before_the_others(scarce: tuple[Slab, list[Buffer]]) -> None:
    slab, held = scarce
    slab.be(2)
    first = slab.wait(1)
    slab.be(3)
    second = slab.wait(6)
    slab.pool.free(*held[:6])
    slab.be(2)
    (buffer,) = slab.look(first)
    slab.pool.leave(first, 0)
    slab.be(4)
    assert slab.take(1) == [], "another process must wait"
    slab.be(2)
    assert len(slab.take(1, 2)) == 2
    assert slab.pool.grow(buffer)[1]
    assert slab.take(1) == []
    assert not slab.pool.grow(buffer)[1], "the turn is over"
    slab.pool.free(*held[6:12])
    slab.be(3)
    assert slab.look(second)


def test_the_next_waiter_is_woken_for_more_than_the_turn_can_still_take(scarce: tuple[Slab, list[Buffer]]) -> None:
    slab, held = scarce
    slab.be(2)
    first = slab.wait(1)
    slab.be(3)
    slab.wait(1)
    slab.set("superblock", "enough_slots", 2)
    slab.be(LIVING)
    assert [slab.pool.free(held.pop())[1] for _ in range(3)] == [-1, 2, -1]
    slab.be(2)
    assert slab.look(first)
    assert slab.pool.leave(first, 0)[1] == -1
    slab.be(LIVING)
    assert [slab.pool.free(held.pop())[1] for _ in range(3)] == [-1, -1, 3], "2, and 3 that the turn has left"


def test_a_turn_ends_when_its_process_waits_again(scarce: tuple[Slab, list[Buffer]]) -> None:
    slab, held = scarce
    slab.be(2)
    first = slab.wait(1)
    slab.be(3)
    slab.wait(1)
    slab.pool.free(held.pop())
    slab.be(2)
    assert slab.look(first)
    slab.pool.leave(first, 0)
    assert slab.get("superblock", "turn")
    slab.wait(1)
    assert not slab.get("superblock", "turn")
    assert slab.pool.free(held.pop())[1] == 3


@pytest.mark.parametrize("is_head", [True, False])
def test_a_head_that_needs_no_memory_any_longer_has_its_turn(scarce: tuple[Slab, list[Buffer]], is_head: bool) -> None:
    slab, held = scarce
    slab.be(2)
    tickets = [slab.wait(1) for _ in range(3)]
    slab.pool.free(*held[:2])
    slab.pool.leave(tickets[1 - is_head], 0, True)
    assert len(slab.take(1, 5)) == (2 if is_head else 0)


def test_a_turn_of_an_earlier_process_is_no_other_process_s(scarce: tuple[Slab, list[Buffer]]) -> None:
    slab, held = scarce
    slab.be(2, 1)
    first = slab.wait(1)
    slab.be(3)
    slab.wait(2)
    slab.pool.free(held.pop(), held.pop())
    slab.be(2, 1)
    assert slab.look(first)
    slab.pool.leave(first, 0)
    slab.be(2, 2)
    assert slab.take(1) == []
    slab.be(2, 1)
    assert len(slab.take(1)) == 1


@pytest.mark.parametrize("left", [5, (1 << 24) - 1])
def test_a_turn_with_more_than_it_can_have_is_not_believed(scarce: tuple[Slab, list[Buffer]], left: int) -> None:
    slab, held = scarce
    slab.be(3)
    slab.wait(1)
    slab.be(2)
    slab.set("superblock", "turn", owner(2) | left << 24 | 1)
    assert slab.pool.free(held.pop())[1] == 3
    assert slab.take(1) == []
