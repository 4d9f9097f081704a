"""Changes of the core that the explorer must find, and scenarios that must hold."""

from __future__ import annotations

from typing import Final, NamedTuple


class Scenario:
    """A scenario of ``memory.pxi``, ``batches.pxi``, ``lanes.pxi``, ``expiry.pxi`` or ``numbering.pxi``.

    Args:
        name: lock, pool, waiters, turns, growth, batches, lanes, expiry or sequences.
        processes: how many there are.
        deaths: most of them that die.
        options: more arguments of the file's ``run``.
    """

    def __init__(self, name: str, processes: int, deaths: int, **options: int) -> None:
        self.name = name
        self.file = "memory" if name in ("lock", "pool", "waiters", "turns", "growth") else "batches"
        self.processes = processes
        self.deaths = deaths
        self.options = options

    def __str__(self) -> str:
        deaths = "1 death" if self.deaths == 1 else f"{self.deaths} deaths"
        options = [name if value is True else f"{name} {value}" for name, value in self.options.items()]
        return ", ".join([f"{self.name}: {self.processes} processes", deaths, *options])


SCENARIOS: Final = (
    Scenario("lock", 2, 2),
    Scenario("lock", 3, 1),
    Scenario("lock", 3, 2),
    Scenario("lock", 2, 2, gate=True),
    Scenario("pool", 2, 2),
    Scenario("pool", 3, 1),
    Scenario("pool", 3, 2, slots=3, of_first=2),
    Scenario("pool", 3, 2, slots=3, of_first=3),
    Scenario("pool", 2, 1, gate=True),
    Scenario("waiters", 2, 2, slots=1),
    Scenario("waiters", 2, 2, slots=2, of_first=2),
    Scenario("waiters", 3, 0, slots=1),
    Scenario("waiters", 3, 0, slots=3, of_first=2),
    Scenario("turns", 2, 1, slots=3, of_first=2),
    Scenario("turns", 3, 0, slots=3),
    Scenario("growth", 2, 2, slots=3),
    Scenario("growth", 3, 1, slots=2),
    Scenario("growth", 3, 2, slots=3),
    Scenario("growth", 2, 2, slots=3, of_first=2),
    Scenario("growth", 3, 1, slots=3, of_first=2),
    Scenario("batches", 2, 2),
    Scenario("batches", 2, 1, records=2),
    Scenario("batches", 2, 2, records=2, retried=1),
    Scenario("batches", 2, 1, records=2, ahead=True),
    Scenario("batches", 2, 1, records=2, checksums=True),
    Scenario("batches", 2, 1, records=2, growth=True, checksums=True),
    Scenario("batches", 3, 0),
    Scenario("batches", 2, 1, columns=3),
    Scenario("lanes", 3, 0, commit=True),
    Scenario("expiry", 2, 1),
    Scenario("expiry", 2, 1, records=2, retried=1),
    Scenario("sequences", 1, 0, records=3, retried=3, forgets=True, expired=1),
    Scenario("sequences", 2, 1, records=3, retried=2, expired=2, begin=1),
    Scenario("sequences", 3, 2, records=2, retried=1, begin=1),
    Scenario("sequences", 2, 1, records=2, retried=2, expired=1, begin=1, late=True),
    Scenario("sequences", 2, 1, records=3, retried=1, parts=True),
    Scenario("sequences", 2, 1, records=3, retried=1, begin=1, parts=True, refuses=1),
    Scenario("sequences", 1, 0, records=3, retried=3, forgets=True, expired=2, begin=1, leaving=True),
    Scenario("sequences", 1, 0, records=3, retried=3, expired=5, begin=1, leaving=True),
    Scenario("sequences", 2, 1, records=2, retried=1, begin=1, leaving=True, replaced=True),
    Scenario("sequences", 2, 1, records=2, retried=1, expired=1, begin=1, last_epoch=True),
    Scenario("lock", 3, 1, buffers=True),
    Scenario("pool", 2, 1, buffers=True),
    Scenario("waiters", 2, 1, slots=1, buffers=True),
    Scenario("batches", 2, 1, buffers=True),
)
"""Each takes seconds at most."""

LONG: Final = (
    Scenario("lock", 3, 1, gate=True),
    Scenario("waiters", 3, 1, slots=1),
    Scenario("turns", 3, 1, slots=3),
    Scenario("waiters", 3, 2, slots=2, of_first=2),
    Scenario("waiters", 3, 0, slots=1, buffers=True),
    Scenario("batches", 2, 1, records=3, ahead=True),
    Scenario("batches", 3, 0, growth=True),
    Scenario("batches", 3, 0, columns=1),
    Scenario("batches", 3, 1),
    Scenario("batches", 2, 2, records=3),
    Scenario("batches", 2, 1, records=3, growth=True, ahead=True),
    Scenario("batches", 2, 1, records=3, growth=True, checksums=True),
    Scenario("batches", 2, 2, records=2, growth=True, buffers=True),
    Scenario("batches", 2, 1, records=2, buffers=True),
    Scenario("expiry", 2, 2, records=2, retried=1),
    Scenario("expiry", 2, 1, records=3),
    Scenario("expiry", 3, 0),
    Scenario("sequences", 2, 2, records=3, retried=2, begin=(1 << 31) - 2),
    Scenario("sequences", 2, 1, records=3, retried=2, forgets=True, expired=1, begin=1),
    Scenario("sequences", 2, 1, records=3, retried=2, expired=1, begin=1, late=True),
    Scenario("sequences", 2, 2, records=3, retried=2, begin=1, parts=True, refuses=1),
    Scenario("sequences", 2, 1, records=2, retried=2, expired=1, begin=1, leaving=True, replaced=True),
    Scenario("sequences", 2, 1, records=3, retried=2, expired=2, begin=1, replaced=True),
    Scenario("sequences", 3, 2, records=2, retried=1, begin=1, replaced=True),
    Scenario("sequences", 2, 1, records=3, retried=2, forgets=True, expired=6, begin=1, leaving=True),
    Scenario("lanes", 3, 0),
    Scenario("lanes", 3, 1, commit=True),
    Scenario("lanes", 3, 1),
)
"""Each takes up to a minute, the last one three."""


class Mutant(NamedTuple):
    """A change of one place of the core.

    Attributes:
        name: of the change.
        file: in ``shmaccum/core/``.
        old: a text that is there once.
        new: what stands there instead.
        scenario: that shows it.
        said: a part of what the explorer says then.
    """

    name: str
    file: str
    old: str
    new: str
    scenario: Scenario
    said: str


_LOCK: Final = Scenario("lock", 2, 1)
_POOL: Final = Scenario("pool", 2, 1)
_CHAIN: Final = Scenario("pool", 3, 1, slots=3, of_first=2)
_WAITERS: Final = Scenario("waiters", 2, 0, slots=1)
_DYING_WAITERS: Final = Scenario("waiters", 2, 1, slots=1)

MUTANTS: Final = (
    Mutant(
        "LOAD_AND_STORE",
        "lock.pxi",
        "    if not compare_and_swap(&line.owner, owner, ticket):\n        return LOCK_BUSY\n    return",
        "    store_relaxed(&line.owner, ticket)\n    return",
        Scenario("lock", 2, 0),
        "two processes are inside",
    ),
    Mutant(
        "LOAD_AGAIN",
        "lock.pxi",
        "if not compare_and_swap(&line.owner, owner, ticket):",
        "if not compare_and_swap(&line.owner, load_relaxed(&line.owner), ticket):",
        Scenario("lock", 2, 0),
        "two processes are inside",
    ),
    Mutant(
        "IGNORE_UNFINISHED",
        "lock.pxi",
        "return LOCK_UNFINISHED if owner == UNFINISHED else LOCK_TAKEN",
        "return LOCK_TAKEN",
        Scenario("lock", 3, 1),
        "half-done",
    ),
    Mutant(
        "STORE_OVER",
        "lock.pxi",
        "    if dead == ticket or dead == 0 or not compare_and_swap(&line.owner, dead, ticket):\n"
        "        return LOCK_BUSY\n",
        "    store_relaxed(&line.owner, ticket)\n",
        Scenario("lock", 3, 1),
        "two processes are inside",
    ),
    Mutant(
        "NO_REBUILD",
        "lock.pxi",
        "    store_relaxed(&line.takeovers, load_relaxed(&line.takeovers) + 1)\n    return LOCK_UNFINISHED",
        "    store_relaxed(&line.takeovers, load_relaxed(&line.takeovers) + 1)\n    return LOCK_TAKEN",
        _LOCK,
        "half-done",
    ),
    Mutant(
        "NO_UNFINISHED",
        "lock.pxi",
        "store_release(&line.owner, UNFINISHED if unfinished else 0)",
        "store_release(&line.owner, 0)",
        _LOCK,
        "half-done",
    ),
    Mutant(
        "TRUST_GATE",
        "lock.pxi",
        "    status = lock_try_word(line, ticket)\n    if status == LOCK_BUSY:\n        _open_gate(gate)",
        "    store_relaxed(&line.owner, ticket)\n    status = LOCK_TAKEN\n"
        "    if status == LOCK_BUSY:\n        _open_gate(gate)",
        Scenario("lock", 2, 1, gate=True),
        "half-done",
    ),
    Mutant(
        "KEEP_LOCK",
        "lock.pxi",
        "    store_release(&line.owner, UNFINISHED if unfinished else 0)\n",
        "",
        Scenario("lock", 2, 0),
        "a process waits for ever",
    ),
    Mutant(
        "NO_INDEX_REBUILD",
        "pool.pxi",
        "        pool_rebuild(pool)\n        store_relaxed(&pool.superblock.rebuilds",
        "        store_relaxed(&pool.superblock.rebuilds",
        _CHAIN,
        "damage where there is none",
    ),
    Mutant(
        "REBUILD_WITHOUT_CHAINS",
        "pool.pxi",
        "        while count and link >= 0:",
        "        count = 1\n        while count and link >= 0:",
        _CHAIN,
        "a slot is given to a second process",
    ),
    Mutant(
        "NO_COUNT",
        "pool.pxi",
        "    store_relaxed(&header.slots, count)\n",
        "",
        Scenario("pool", 2, 0, slots=3, of_first=2),
        "the bitmap is wrong in the end",
    ),
    Mutant(
        "NO_OWNER",
        "pool.pxi",
        "store_release(&header.state, owner | STATE_ALLOCATED)",
        "store_release(&header.state, STATE_ALLOCATED)",
        _POOL,
        "a slot is never freed",
    ),
    Mutant(
        "TAKEN_NOT_COUNTED",
        "pool.pxi",
        "count + 1 if free else count - 1",
        "count + 1 if free else count",
        Scenario("pool", 2, 0),
        "the number of free slots is wrong in the end",
    ),
    Mutant(
        "RECLAIM_ALL",
        "pool.pxi",
        "if state & STATE_MASK == STATE_ALLOCATED and _is_dead(dead, state):",
        "if state & STATE_MASK == STATE_ALLOCATED:",
        Scenario("waiters", 3, 1, slots=2),
        "an allocated buffer is not freed",
    ),
    Mutant(
        "FREE_WAKES_NOBODY",
        "pool.pxi",
        "        waiter[0] = _to_wake(pool, head, tail)\n",
        "        pass\n",
        _WAITERS,
        "a process waits for ever",
    ),
    Mutant(
        "TURN_HOLDS_ALL_SLOTS",
        "pool.pxi",
        "    return left if left <= pool.most_at_once else 0\n",
        "    return 2 * pool.most_at_once\n",
        Scenario("turns", 3, 0, slots=3),
        "a process waits for ever",
    ),
    Mutant(
        "HEAD_STAYS",
        "pool.pxi",
        "            store_relaxed(_cell(pool, number), 0)\n            _move_head(pool, head, tail)\n",
        "            store_relaxed(_cell(pool, number), 0)\n",
        _WAITERS,
        "a ticket stays in the queue",
    ),
    Mutant(
        "TICKET_STAYS",
        "pool.pxi",
        "            store_relaxed(_cell(pool, number), 0)\n            _move_head(pool, head, tail)\n",
        "",
        _WAITERS,
        "a process waits for ever",
    ),
    Mutant(
        "WAIT_FOR_THE_DEAD",
        "pool.pxi",
        "if _is_dead(dead, cell) or _is_overdue(cell, now_s):",
        "if _is_overdue(cell, now_s):",
        _DYING_WAITERS,
        "a ticket stays in the queue",
    ),
    Mutant(
        "DOUBLE_ALLOCATION",
        "pool.pxi",
        "        _mark(pool, slot, False)\n        count -= 1",
        "        count -= 1",
        Scenario("pool", 2, 0),
        "damage where there is none",
    ),
    Mutant(
        "ALWAYS_POST",
        "lock.pxi",
        "if not sem_getvalue(gate, &value) and value <= 0:",
        "if not sem_getvalue(gate, &value):",
        Scenario("lock", 2, 0, gate=True),
        "units of the gate pile up",
    ),
    Mutant(
        "NEVER_POST",
        "lock.pxi",
        "            sem_post(gate)\n",
        "            pass\n",
        Scenario("lock", 2, 0, gate=True),
        "no schedule ends",
    ),
    Mutant(
        "EARLY_RELEASE",
        "pool.pxi",
        "    for index in range(count):\n        freed[0] += slots_give(pool, &handles[index])\n",
        "    lock_release(pool.line, pool.gate, False)\n"
        "    for index in range(count):\n        freed[0] += slots_give(pool, &handles[index])\n",
        Scenario("pool", 3, 0),
        "the number of free slots",
    ),
    Mutant(
        "STATE_STAYS",
        "pool.pxi",
        "    store_release(&_header(pool, slot).state, STATE_FREE)\n",
        "",
        Scenario("pool", 2, 0),
        "damage where there is none",
    ),
    Mutant(
        "GENERATION_STAYS",
        "pool.pxi",
        "    store_relaxed(&header.generation, taken.generation)\n",
        "",
        Scenario("pool", 2, 0),
        "an allocated buffer is not freed",
    ),
    Mutant(
        "REBUILD_TAKES_ALL",
        "pool.pxi",
        "        if not load_acquire(&_header(pool, slot).state) & STATE_MASK:\n"
        "            continue\n        count, link",
        "        count, link",
        _POOL,
        "the bitmap is wrong in the end",
    ),
    Mutant(
        "REBUILD_FORGETS_COUNT",
        "pool.pxi",
        "    store_relaxed(&pool.superblock.free_slots, free)\n",
        "",
        _POOL,
        "the number of free slots",
    ),
    Mutant(
        "NO_CELL",
        "pool.pxi",
        "    store_relaxed(_cell(pool, ticket), owner | (deadline & DEADLINE_MASK) << DEADLINE_SHIFT | CELL_HELD)\n",
        "",
        _WAITERS,
        "a process waits for ever",
    ),
    Mutant(
        "ONE_SLOT_FREED",
        "pool.pxi",
        "        count -= 1\n        if not count:\n"
        "            return True\n        slot = following(&pool.slots, slot)\n    slots_rebuild",
        "        return True\n    slots_rebuild",
        Scenario("pool", 2, 0, slots=3, of_first=2),
        "the bitmap is wrong in the end",
    ),
    Mutant(
        "DEAD_FOR_EVER",
        "pool.pxi",
        "            slots_give(pool, &handle)\n        else:",
        "            pass\n        else:",
        _POOL,
        "a slot is never freed",
    ),
    Mutant(
        "SMALLER_THAN_WANTED",
        "pool.pxi",
        "    taken.slots = count\n",
        "    taken.slots = count + 1\n",
        Scenario("pool", 2, 0),
        "a chain ends before its last slot",
    ),
    Mutant(
        "GROWN_SLOT_STAYS_FREE",
        "pool.pxi",
        "    _mark(pool, added, False)\n    _note_peak(pool)\n    return True\n\n\ncdef int pool_extend",
        "    return True\n\n\ncdef int pool_extend",
        Scenario("growth", 3, 0, slots=3),
        "the bitmap is wrong in the end",
    ),
    Mutant(
        "COUNTED_BEFORE_LINKED",
        "pool.pxi",
        "    store_relaxed(&_header(pool, last).chain, <uint64_t>added + 1)\n    handle.slots += 1\n"
        "    store_release(&_header(pool, handle.slot).slots, handle.slots)\n",
        "    handle.slots += 1\n    store_release(&_header(pool, handle.slot).slots, handle.slots)\n"
        "    store_relaxed(&_header(pool, last).chain, <uint64_t>added + 1)\n",
        Scenario("growth", 2, 1, slots=3),
        "a slot counts that is not linked",
    ),
    Mutant(
        "STAYS_ALLOCATED",
        "pool.pxi",
        "        store_release(&_header(pool, own.slot).state, STATE_FREE)\n        handle.slots += own.slots\n",
        "        handle.slots += own.slots\n",
        Scenario("growth", 2, 0, slots=3, of_first=2),
        "a slot is never freed",
    ),
    Mutant(
        "NO_CONTRIBUTOR",
        "results.pxi",
        "        store_release(bits, load_relaxed(bits) | 1ULL << entry % WORD_BITS)\n",
        "",
        Scenario("batches", 2, 0),
        "a contributor is not told",
    ),
    Mutant(
        "TAIL_BEFORE_CELL",
        "rings.pxi",
        "    store_relaxed(&cell.batch, outcome.batch)\n",
        "    store_release(&reader_of(rings, entry).ring_tail, tail + 1)\n"
        "    store_relaxed(&cell.batch, outcome.batch)\n",
        Scenario("batches", 2, 0, records=3),
        "a completion is of a batch that the broker does not have",
    ),
    Mutant(
        "NOT_TOLD_AGAIN",
        "rings.pxi",
        "if not (again and ring_has(rings, entry, &outcome)):",
        "if not again:",
        Scenario("batches", 2, 1),
        "a contributor is not told",
    ),
    Mutant(
        "OPEN_IN_FLIGHT",
        "queue.pxi",
        "    if load_relaxed(&partition.open) == slot + 1:\n        store_release(&partition.open, 0)\n",
        "",
        Scenario("batches", 2, 0, records=2),
        "a process changes what is another's",
    ),
    Mutant(
        "STAYS_OPEN",
        "drain.pxi",
        "        deque_close_open(&deques.slots, queue, damage)\n    return stripe_exit",
        "        pass\n    return stripe_exit",
        Scenario("batches", 2, 0, records=2, ahead=True),
        "a batch has changed after it was closed",
    ),
    Mutant(
        "GROWS_ANYTHING",
        "pool.pxi",
        "    if not _is_taken(pool, handle) or _count_of(pool, last) != left:\n        return -1\n",
        "",
        Scenario("growth", 2, 0, slots=3),
        "the bitmap is wrong in the end",
    ),
    Mutant(
        "LOOK_BEFORE_BEGIN",
        "append.pxi",
        "load_acquire(&header.state) & STATE_MASK != STATE_OPEN or",
        "",
        Scenario("batches", 3, 0, records=2, columns=1),
        "a record has another's timestamp",
    ),
    Mutant(
        "ROWS_OF_ANOTHER_BATCH",
        "append.pxi",
        "        or _batch_of(record) != rows.batch\n",
        "",
        Scenario("batches", 3, 0, records=2, columns=1),
        "a record has another's timestamp",
    ),
    Mutant(
        "ROWS_OF_OLD_COMMIT",
        "append.pxi",
        "        or commit != rows.commit\n",
        "",
        Scenario("batches", 3, 0, columns=2),
        "a batch that is sent is torn",
    ),
    Mutant(
        "REST_IN_PLACE",
        "append.pxi",
        "            cursor.slot, cursor.offset = <uint64_t>link, 0\n",
        "            cursor.offset = 0\n",
        Scenario("batches", 2, 0, records=2, growth=True),
        "a batch that is sent is torn",
    ),
    Mutant(
        "REST_NOT_SUMMED",
        "checksum.pxi",
        "        slot, room = load_relaxed(&header_of(slots, slot).chain) - 1, slots.slot_size\n",
        "        break\n",
        Scenario("batches", 2, 0, records=2, growth=True, checksums=True),
        "a checksum is of other records",
    ),
    Mutant(
        "GROWS_WITH_A_SLOT",
        "append.pxi",
        "    record.may_grow = False  # the slot is for a new batch\n",
        "",
        Scenario("batches", 3, 0, growth=True),
        "a slot is never freed",
    ),
    Mutant(
        "CHECKSUM_IN_PLACE",
        "append.pxi",
        "        checksum_store(header, load_relaxed(&header.partition), cell, before + added, crc)",
        "        checksum_store(header, load_relaxed(&header.partition), commit & 1, before + added, crc)",
        Scenario("batches", 2, 1, records=2, checksums=True),
        "a checksum is of other records",
    ),
    Mutant(
        "CHECKSUM_OF_OTHER_COUNT",
        "append.pxi",
        "        crc = checksum_of(header, commit & 1, before)\n",
        "        crc = checksum_of(header, cell, before)\n",
        Scenario("batches", 2, 0, records=2, checksums=True),
        "a checksum is of other records",
    ),
    Mutant(
        "NOT_LINKED",
        "queue.pxi",
        "    if tail:\n        store_release(&header_of(slots, tail - 1).next, slot + 1)\n    else:",
        "    if not tail:",
        Scenario("batches", 2, 0, records=3),
        "the number of queued batches is wrong",
    ),
    Mutant(
        "NOT_COUNTED_AS_QUEUED",
        "queue.pxi",
        "    store_release(&queue.partition.queued, load_relaxed(&queue.partition.queued) + 1)\n    if state",
        "    if state",
        Scenario("batches", 2, 0),
        "the number of queued batches is wrong",
    ),
    Mutant(
        "DEQUE_NOT_REBUILT",
        "queue.pxi",
        "        if not stripe_rebuild(deques, queue.entry % STRIPES, damage):",
        "        if False:",
        Scenario("batches", 2, 1, records=3),
        "the number of queued batches is wrong",
    ),
    Mutant(
        "NOT_SORTED",
        "repair.pxi",
        "_sort(slots, load_relaxed(&partition.tail))",
        "load_relaxed(&partition.tail)",
        Scenario("batches", 2, 1, records=3),
        "out of order",
    ),
    Mutant(
        "POSITION_STAYS",
        "queue.pxi",
        "    store_relaxed(&queue.partition.next_position, position + 1)\n    store_release(&queue.partition.tail",
        "    store_release(&queue.partition.tail",
        Scenario("batches", 2, 1, records=3),
        "out of order",
    ),
    Mutant(
        "COUNT_STAYS",
        "append.pxi",
        "store_release(&header.commit, size << COMMIT_SIZE_SHIFT | before + added << 1 | cell)\n",
        "store_release(&header.commit, size << COMMIT_SIZE_SHIFT | 1 << 1 | cell)\n",
        Scenario("batches", 2, 0, records=2),
        "a batch counts its records wrongly",
    ),
    Mutant(
        "DOORBELL_WITHOUT_FENCE",
        "append.pxi",
        "    if record.is_news:\n        fence()\n",
        "",
        Scenario("batches", 2, 0, buffers=True),
        "a process waits for ever",
    ),
    Mutant(
        "APPEND_TO_ANY_LEASE",
        "queue.pxi",
        "load_acquire(&queue.lane.generation) == queue.lane_generation",
        "load_acquire(&queue.lane.generation) != 0",
        Scenario("lanes", 3, 0),
        "damage of a deque where there is none",
    ),
    Mutant(
        "LEASE_UNSEEN",
        "tables.pxi",
        "        store_release(&lane.holder, ticket)\n        _raise_lanes_changed(tables)\n",
        "        store_release(&lane.holder, ticket)\n",
        Scenario("lanes", 3, 0, commit=True),
        "a process waits for ever",
    ),
    Mutant(
        "DEATH_IN_LEASE_UNSEEN",
        "tables.pxi",
        "        _raise_generation(tables)\n        _raise_lanes_changed(tables)\n",
        "        _raise_generation(tables)\n",
        Scenario("lanes", 3, 1, commit=True),
        "a process waits for ever",
    ),
    Mutant(
        "DROP_FROM_OPEN_LANE",
        "drain.pxi",
        "    if not is_open and load_relaxed(&queue.partition.head) == slot + 1",
        "    if load_relaxed(&queue.partition.head) == slot + 1",
        Scenario("lanes", 3, 0),
        "a committed record is lost",
    ),
    Mutant(
        "TAKE_FROM_THE_LIVING",
        "tables.pxi",
        "    if load_relaxed(&lane.holder) == holder:\n",
        "    if True:\n",
        Scenario("lanes", 3, 1),
        "a committed record is lost",
    ),
    Mutant(
        "EXPIRES_AS_SEEN",
        "drain.pxi",
        "        slot >= deques.slots.slot_count or load_relaxed(&header_of(&deques.slots, slot).limits) == limits\n",
        "        True\n",
        Scenario("expiry", 3, 0),
        "a record fails before its producer's time",
    ),
    Mutant(
        "LIMITS_STAY",
        "append.pxi",
        "            timeout_ms = producer.timeout_ms\n",
        "            pass\n",
        Scenario("expiry", 3, 0),
        "a record fails before its producer's time",
    ),
    Mutant(
        "RESULT_BEHIND_STATE",
        "batch.pxi",
        "    store_relaxed(&header.result, result)\n"
        "    store_release(&header.state, load_relaxed(&header.state) & ~<uint64_t>STATE_MASK | STATE_COMPLETING)\n",
        "    store_release(&header.state, load_relaxed(&header.state) & ~<uint64_t>STATE_MASK | STATE_COMPLETING)\n"
        "    store_relaxed(&header.result, result)\n",
        Scenario("expiry", 2, 1),
        "an acknowledged record is lost",
    ),
    Mutant(
        "NEVER_COMPLETING",
        "batch.pxi",
        "    store_release(&header.state, load_relaxed(&header.state) & ~<uint64_t>STATE_MASK | STATE_COMPLETING)\n",
        "",
        Scenario("expiry", 2, 0),
        "a completion comes twice",
    ),
    Mutant(
        "NUMBER_TAKEN_TWICE",
        "sequences.pxi",
        "                self._set_next(partition, epoch, end_sequence_of(batch.header))\n",
        "                pass\n",
        Scenario("sequences", 2, 1, records=2, begin=1),
        "an acknowledged record is lost",
    ),
    Mutant(
        "NUMBERED_AGAIN",
        "sequences.pxi",
        "        if not self._is_numbered(batch.header, batch.partition):\n            producer_id",
        "        if True:\n            producer_id",
        Scenario("sequences", 1, 0, records=2, retried=1),
        "a record is stored twice",
    ),
    Mutant(
        "FIRST_NOT_ALONE",
        "sequences.pxi",
        "outstanding.first != 0 and not self._is_known(entry)",
        "False",
        Scenario("sequences", 1, 0, records=2, retried=1),
        "an acknowledged record is lost",
    ),
    Mutant(
        "NEVER_UNDECIDED",
        "sequences.pxi",
        "        return is_followed\n",
        "        return False\n",
        Scenario("sequences", 1, 0, records=3, retried=3, begin=1, forgets=True),
        "a record is stored twice",
    ),
    Mutant(
        "SAME_NUMBERS_AFTER_BUMP",
        "sequences.pxi",
        "        self._set_next(partition, epoch + 1, 0)\n",
        "        self._set_next(partition, epoch + 1, 1)\n",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1, expired=1),
        "a batch is never sent",
    ),
    Mutant(
        "NO_BUMP",
        "sequences.pxi",
        "            self._bump(outstanding, partition)\n        slot",
        "            pass\n        slot",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1, expired=1),
        "a batch is never sent",
    ),
    Mutant(
        "NUMBER_OF_OLD_EPOCH",
        "sequences.pxi",
        "        return (number >> EPOCH_SHIFT) - 1 == following >> EPOCH_SHIFT\n",
        "        return True\n",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1, expired=1),
        "batches are sent for ever",
    ),
    Mutant(
        "STORED_IF_REFUSED",
        "sequences.pxi",
        "        return (acked - end_sequence_of(batch.header) & LAST_SEQUENCE) < HALF_OF_SEQUENCES\n",
        "        return True\n",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1),
        "an acknowledged record is lost",
    ),
    Mutant(
        "REFUSED_IF_STORED",
        "sequences.pxi",
        "        return (acked - end_sequence_of(batch.header) & LAST_SEQUENCE) < HALF_OF_SEQUENCES\n",
        "        return False\n",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1, forgets=True),
        "a record is stored twice",
    ),
    Mutant(
        "PART_AS_WHOLE",
        "batch.pxi",
        "    if not part:\n        return 0\n    return completed << 32",
        "    return 0\n    return completed << 32",
        Scenario("sequences", 1, 0, records=2, parts=True),
        "a record is not completed once",
    ),
    Mutant(
        "PART_KEEPS_NUMBER",
        "batch.pxi",
        "    return next_sequence(sequence, (completed & PROGRESS_MASK) - (completed >> PROGRESS_SHIFT))\n",
        "    return sequence\n",
        Scenario("sequences", 1, 0, records=2, parts=True),
        "an acknowledged record is lost",
    ),
    Mutant(
        "PART_STAYS",
        "batch.pxi",
        "    store_release(&header.completed, skipped << PROGRESS_SHIFT | end)\n",
        "",
        Scenario("sequences", 1, 0, records=2, parts=True),
        "batches are sent for ever",
    ),
    Mutant(
        "PART_RENUMBERED",
        "batch.pxi",
        "        sequence = next_sequence(sequence, 0 - completed)\n",
        "",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1, parts=True, refuses=1),
        "batches are sent for ever",
    ),
    Mutant(
        "ALWAYS_KNOWABLE",
        "sequences.pxi",
        "            return False\n        return self._is_decided(outstanding, batch.partition)\n",
        "            return False\n        return False\n",
        Scenario("sequences", 1, 0, records=3, retried=3, forgets=True, expired=2, begin=1, leaving=True),
        "a record is stored twice",
    ),
    Mutant(
        "GAP_AS_UNKNOWABLE",
        "sequences.pxi",
        "            return False\n        return self._is_decided(outstanding, batch.partition)\n",
        "            return False\n        return True\n",
        Scenario("sequences", 1, 0, records=3, retried=3, expired=5, begin=1, leaving=True),
        "a batch fails that could be sent again",
    ),
    Mutant(
        "REPLACED_WITHOUT_ANSWER",
        "sequences.pxi",
        "            if outstanding.first and not outstanding.refused:\n                return False\n",
        "",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1, replaced=True),
        "a record is stored twice",
    ),
    Mutant(
        "NUMBERED_WHILE_REPLACED",
        "sequences.pxi",
        "return (self.id_is_spent and outstanding.lane == NULL) or not",
        "return not",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1, leaving=True, replaced=True),
        "a batch is numbered under a producer id that is being replaced",
    ),
    Mutant(
        "REPLACED_FOR_EVER",
        "sequences.pxi",
        "            self.id_is_spent = False\n",
        "            pass\n",
        Scenario("sequences", 1, 0, records=2, retried=1, begin=1, leaving=True, replaced=True),
        "a batch is numbered under a producer id that is being replaced",
    ),
    Mutant(
        "EXPECTED_OF_OLD_ID",
        "sequences.pxi",
        "                store_relaxed(&partition.acked_sequence, epoch << EPOCH_SHIFT)\n",
        "",
        Scenario("sequences", 1, 0, records=3, retried=2, expired=1, begin=1, last_epoch=True),
        "an acknowledged record is lost",
    ),
    Mutant(
        "HELD_BY_OLD_ID",
        "sequences.pxi",
        "                store_relaxed(&partition.held, 0)\n        store",
        "        store",
        Scenario("sequences", 1, 0, records=3, retried=2, expired=1, begin=1, last_epoch=True),
        "a batch is never sent",
    ),
    Mutant(
        "NUMBER_OF_OLD_ID",
        "sequences.pxi",
        " or load_relaxed(&header.producer_id) != producer_id:",
        ":",
        Scenario("sequences", 1, 0, records=3, retried=3, forgets=True, expired=1, begin=1, replaced=True),
        "batches are sent for ever",
    ),
)


THREADED: Final = (
    Scenario("lock", 3, 0),
    Scenario("lock", 2, 0, gate=True),
    Scenario("pool", 3, 0, slots=3, of_first=2),
    Scenario("growth", 3, 0, slots=3),
    Scenario("waiters", 3, 0, slots=1),
    Scenario("batches", 3, 0, records=3),
    Scenario("batches", 3, 0, records=2, retried=1),
    Scenario("batches", 3, 0, growth=True),
    Scenario("batches", 2, 0, records=3, growth=True, ahead=True),
)
"""For threads, with ThreadSanitizer."""

RACES: Final = (
    Mutant(
        "RELAXED_RELEASE",
        "lock.pxi",
        "store_release(&line.owner, UNFINISHED if unfinished else 0)",
        "store_relaxed(&line.owner, UNFINISHED if unfinished else 0)",
        Scenario("lock", 3, 0),
        "data race",
    ),
    Mutant(
        "RELAXED_SWAP",
        "atomics.h",
        "__ATOMIC_ACQ_REL, __ATOMIC_RELAXED)",
        "__ATOMIC_RELAXED, __ATOMIC_RELAXED)",
        Scenario("batches", 3, 0, records=3),
        "data race",
    ),
    Mutant(
        "RELAXED_TAIL",
        "rings.pxi",
        "    store_release(&reader_of(rings, entry).ring_tail, tail + 1)",
        "    store_relaxed(&reader_of(rings, entry).ring_tail, tail + 1)",
        Scenario("batches", 3, 0, records=3),
        "data race",
    ),
)
"""Orders of memory that are weakened, which ThreadSanitizer must find."""
