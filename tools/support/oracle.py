"""An independent check of a slab at rest: what must hold of its words when no process is in the middle of a change.

It knows the promises of docs/inside/core.md, and shares no code with the package's own validation and rebuilds: it
reads the headers, and derives from them what the bitmap, the deques and the counts must be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c

if TYPE_CHECKING:
    from shmaccum._core import Segment

FREE, OPEN, CLOSED, IN_FLIGHT, COMPLETING = 0, 2, 3, 4, 5
HEADER_SIZE = 61


def violations(segment: Segment) -> list[str]:
    """Return what is wrong with a slab at rest, a sentence each; nothing for a sound one."""
    return [
        *_of_locks(segment),
        *_of_slots(segment),
        *_of_checksums(segment),
        *_of_deques(segment),
        *_of_rings(segment),
        *_of_waiters(segment),
    ]


def _of_locks(segment: Segment) -> Iterator[str]:
    for number, owner in enumerate(segment.view("locks")["owner"].tolist()):
        if owner:
            yield f"lock {number} has the owner word {owner}"


def _of_slots(segment: Segment) -> Iterator[str]:
    """Each slot belongs to one batch or is free; the bitmap and the count say the same."""
    headers, superblock = segment.view("headers"), segment.view("superblock")
    slot_bytes = (int(superblock["total_size"]) - _begin_of_slots(segment)) // len(headers)
    owner_of: dict[int, int] = {}
    for first, (state, count) in enumerate(zip(headers["state"].tolist(), headers["slots"].tolist(), strict=True)):
        if state & 0xFF > COMPLETING:
            yield f"slot {first} has the state {state & 0xFF}"
        if state & 0xFF == FREE:
            continue
        if not 0 < count <= len(headers):
            yield f"slot {first} begins a batch of {count} slots, of {len(headers)}"
            continue
        chain = _chain(headers, first, count)
        if chain is None:
            yield f"slot {first} begins a damaged chain"
            continue
        for slot in chain:
            if slot in owner_of:
                yield f"slot {slot} belongs to the batches of slots {owner_of[slot]} and {first}"
            owner_of[slot] = first
        size = int(headers["commit"][first]) >> 25
        if size > len(chain) * slot_bytes:
            yield f"slot {first} has {size} committed bytes in {len(chain)} slots"
    taken = np.zeros(len(headers), bool)
    taken[list(owner_of)] = True
    bits = np.unpackbits(segment.view("bitmap")["bits"].view("u1"), bitorder="little").astype(bool)
    yield from (
        f"slot {slot} is free in the bitmap: {bits[slot]}" for slot in np.flatnonzero(bits[: len(taken)] == taken)
    )
    if bits[len(taken) :].any():
        yield "the bitmap has bits behind the last slot"
    if int(superblock["free_slots"]) != len(taken) - len(owner_of):
        yield f"{len(taken) - len(owner_of)} slots are free, not {superblock['free_slots']}"
    used, touched = np.flatnonzero(headers["generation"]), int(superblock["touched_slots"])
    if not (used[-1] + 1 if len(used) else 0) <= touched <= len(headers):
        yield f"slots {used.tolist()} have been used; the superblock says it of those below {touched}"


def _begin_of_slots(segment: Segment) -> int:
    superblock = segment.view("superblock")
    return int(superblock["total_size"]) - int(superblock["slot_size"]) * int(superblock["slot_count"])


def _in(headers: np.ndarray, *states: int) -> list[int]:
    return [slot for slot, state in enumerate(headers["state"].tolist()) if state & 0xFF in states]


def _chain(headers: np.ndarray, first: int, count: int) -> list[int] | None:
    """Return the slots of a batch, in order; None if its links are wrong. A link behind the last slot means nothing."""
    chain = [first]
    while len(chain) < count:
        following = int(headers["chain"][chain[-1]]) - 1
        if not 0 <= following < len(headers) or following in chain or headers["state"][following] & 0xFF != FREE:
            return None
        chain.append(following)
    return chain


def _of_checksums(segment: Segment) -> Iterator[str]:
    """Each queued batch has the checksum of its bytes, in a slab that keeps them."""
    headers, superblock, memory = segment.view("headers"), segment.view("superblock"), memoryview(segment)
    if not superblock["keeps_checksums"]:
        return
    begin_of_slots, slot_size = _begin_of_slots(segment), int(superblock["slot_size"])
    for slot in _in(headers, OPEN, CLOSED):
        commit = int(headers["commit"][slot])
        chain = _chain(headers, slot, int(headers["slots"][slot]))
        begins = [begin_of_slots + each * slot_size for each in chain or ()]
        data = b"".join(memory[begin : begin + slot_size] for begin in begins)
        said = struct.pack("<3Q", headers["partition"][slot], headers["base_timestamp"][slot], commit >> 1 & 0xFFFFFF)
        expected = crc32c(data[HEADER_SIZE : commit >> 25]) ^ crc32c(said)
        found = int(headers["checksums"][slot]) >> 32 * (commit & 1) & 0xFFFFFFFF
        if found != expected:
            yield f"slot {slot} has the checksum {found:#x}, not {expected:#x}"


def _of_deques(segment: Segment) -> Iterator[str]:
    """The links, ends and counts of each deque follow from the queued batches, in the order of their positions."""
    headers, partitions = segment.view("headers"), segment.view("partitions")
    queued: dict[int, list[tuple[int, int]]] = {}
    states = headers["state"] & 0xFF
    for slot in _in(headers, OPEN, CLOSED):
        queued.setdefault(int(headers["partition"][slot]), []).append((int(headers["position"][slot]), slot))
        if not int(headers["commit"][slot]) >> 1 & 0xFFFFFF:
            yield f"slot {slot} is queued without a record"
    given: dict[int, list[int]] = {}
    for slot in _in(headers, OPEN, CLOSED, IN_FLIGHT, COMPLETING):
        given.setdefault(int(headers["partition"][slot]), []).append(int(headers["position"][slot]))
    count = int(segment.view("superblock")["partition_count"])
    yield from (
        f"{len(queued[entry])} batches are queued for partition entry {entry}" for entry in queued if entry >= count
    )
    columns = {name: partitions[name].tolist() for name in ("head", "tail", "open", "queued", "next_position")}
    for entry in range(count):
        words = {name: column[entry] for name, column in columns.items()}
        slots = [slot for _, slot in sorted(queued.get(entry, []))]
        positions = given.get(entry, [])
        if len(set(positions)) < len(positions) or max(positions, default=-1) >= words["next_position"]:
            yield f"partition entry {entry} has the positions {positions}, and {words['next_position']} is next"
        if any(states[slot] == OPEN for slot in slots[:-1]):
            yield f"partition entry {entry} has an open batch that is not the last"
        is_open = bool(slots) and states[slots[-1]] == OPEN
        wanted = {
            "head": slots[0] + 1 if slots else 0,
            "tail": slots[-1] + 1 if slots else 0,
            "open": slots[-1] + 1 if is_open else 0,
            "queued": len(slots),
        }
        yield from (
            f"partition entry {entry} has {name} {words[name]}, not {value}"
            for name, value in wanted.items()
            if words[name] != value
        )
        for before, slot, after in zip([-1, *slots], slots, [*slots[1:], -1], strict=False):
            links = int(headers["previous"][slot]), int(headers["next"][slot])
            if links != (before + 1, after + 1):
                yield f"slot {slot} of partition entry {entry} has the links {links}, not {(before + 1, after + 1)}"


def _of_rings(segment: Segment) -> Iterator[str]:
    length = segment.view("rings").shape[1]
    processes = segment.view("processes")
    for entry, (head, tail) in enumerate(
        zip(processes["ring_head"].tolist(), processes["ring_tail"].tolist(), strict=True)
    ):
        if not head <= tail <= head + length:
            yield f"the ring of process entry {entry} goes from {head} to {tail}, with room for {length}"


def _of_waiters(segment: Segment) -> Iterator[str]:
    superblock = segment.view("superblock")
    cells = segment.view("waiters")
    head, tail = int(superblock["waiter_head"]), int(superblock["waiter_tail"])
    if not head <= tail <= head + len(cells):
        yield f"the waiter queue goes from {head} to {tail}, with room for {len(cells)}"
