"""What the survivor does after the victim's death, and before it, beside a victim that is stopped in an operation.

Each violation becomes a line of text.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from shmaccum._core import Super
from shmaccum.errors import BufferExhaustedError, LockTimeoutError
from shmaccum.shm import names
from shmaccum.shm.lifecycle import look
from tools.step.account import Told
from tools.step.checker import violations
from tools.step.settings import HALF, LARGE, PARTITIONS, PATIENCE_S, TOPIC
from tools.step.survivor import PATIENCE_MS, Stage, Survivor
from tools.support.reading import read_log
from tools.support.slabcheck import unrest

LONGEST_CALL_S: Final = 3.0
"""Limit of a call beside a stopped process."""


def work_beside(survivor: Survivor, pid: int, wrong: list[str]) -> int:
    """Do what other processes of a host do while the victim ``pid`` is stopped; add violations to ``wrong``.

    Each call ends within `LONGEST_CALL_S`. It succeeds, or its error names the victim, which holds a lock. A call can
    also find no memory: the victim can have it.

    Returns:
        How many calls had to wait for what the victim holds.
    """
    survivor.stage = Stage.BESIDE
    if not survivor.is_attached:
        return 0  # it comes later
    named = 0
    for name, call in _calls(survivor):
        began = time.monotonic()
        try:
            call()
        except BufferExhaustedError:
            pass
        except LockTimeoutError as error:
            if str(pid) not in str(error):
                wrong.append(f"{name}: {error!r} does not name process {pid}")
            named += 1
        except Exception:
            wrong.append(f"{name}: {traceback.format_exc()}")
        took_s = time.monotonic() - began
        if took_s > LONGEST_CALL_S:
            wrong.append(f"{name} took {took_s:.1f} s beside a stopped process")
    return named


def _calls(survivor: Survivor) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield calls, each by its name."""
    slab, accumulator = survivor.slab, survivor.accumulator
    for lock in slab.locks:
        yield f"rebuild {lock.number}", partial(lock.run, partial(slab.rebuild, lock.number), PATIENCE_S)
    yield "reap the dead", slab.reap_dead
    yield "reclaim", partial(accumulator.pool.reclaim, PATIENCE_S)
    for partition in range(len(PARTITIONS)):
        for text, size in (("beside", 0), ("beside, half", HALF), ("beside, large", LARGE)):
            append = partial(survivor.append, partition, text, size, PATIENCE_S * 1000)
            yield f"append {text} to {partition}", append
        if survivor.sender is not None:
            yield "run a pass", survivor.run_once
    yield "allocate and free", partial(_allocate_and_free, survivor)


def _allocate_and_free(survivor: Survivor) -> None:
    with suppress(BufferExhaustedError):
        pool = survivor.accumulator.pool
        pool.deallocate(pool.allocate(1, PATIENCE_S * 1000))


def survive(survivor: Survivor, victims: Sequence[Told], wrong: list[str]) -> None:
    """Continue after the victim's death; the first violations, added to ``wrong``, end this."""
    survivor.stage = Stage.AFTER
    _take_over(survivor)
    wrong += violations(survivor.accumulator)
    if not wrong:
        _recover(survivor)
        wrong += violations(survivor.accumulator)
    if not wrong:
        _do_everything(survivor)
        wrong += violations(survivor.accumulator)
        wrong += _unrest(survivor)
    if not wrong:
        name = survivor.slab.name
        survivor.leave()
        wrong += [f"{path} is left behind" for path in names.leftovers(name) if os.path.exists(path)]
        wrong += _compare_log(survivor, victims)


def _take_over(survivor: Survivor) -> None:
    """Rebuild all indexes, of dead holders, too, and clean up after dead processes."""
    slab = survivor.slab
    for lock in slab.locks:
        lock.run(partial(slab.rebuild, lock.number), PATIENCE_MS / 1000)
    slab.reap_dead()
    survivor.accumulator.pool.reclaim()


def _recover(survivor: Survivor) -> None:
    """Return the memory that was held for the scene, and become the sender, or end what that has begun."""
    while survivor.held:
        survivor.give_one_back()
    if survivor.sender is None:
        survivor.serve()
    else:
        survivor.deliver()


def _do_everything(survivor: Survivor) -> None:
    """Append, flush, deliver, and allocate all memory."""
    survivor.know_topic()
    for partition in range(len(PARTITIONS)):
        for text, size in (("after", 0), ("after, half", HALF), ("after, half again", HALF), ("after, large", LARGE)):
            survivor.append(partition, text, size)
    survivor.deliver()
    survivor.accumulator.producer.flush(0)
    slots = survivor.slab.geometry.slot_count
    for requests in ([slots], [1] * slots):
        for count in requests:
            survivor.take(count)
        while survivor.held:
            survivor.give_one_back()


def _unrest(survivor: Survivor) -> list[str]:
    """Return what is not at rest although everything is delivered."""
    wrong = []
    bumps = survivor.slab.words[Super.EPOCH_BUMPS]
    if bumps and not any(own.future.failed() for own in survivor.own):
        wrong.append(f"{bumps} epochs were abandoned because of sequence numbers that a broker would refuse")
    with look(survivor.slab.name) as view:
        wrong += unrest(view)
    return wrong


def _compare_log(survivor: Survivor, victims: Sequence[Told]) -> list[str]:
    """Compare the log with what is known of every record."""
    wrong: list[str] = []
    found: dict[int, list[str]] = defaultdict(list)
    for stored in read_log(Path(survivor.config.log_dir), wrong, (TOPIC,)):
        found[stored.partition].append("" if stored.value is None else stored.value.decode())
    for number, own in enumerate(survivor.own):
        if not own.future.is_done:
            wrong.append(f"record {number} {own.value!r}: its future is not resolved")
        elif own.future.succeeded():
            offset = own.future.get(0).offset
            if found[own.partition][offset : offset + 1] != [own.value]:
                wrong.append(f"record {number} {own.value!r} is acknowledged, but is not at offset {offset}")
    for partition in range(len(PARTITIONS)):
        first, beside, last = (
            [
                each.value
                for each in survivor.own
                if (each.stage, each.partition) == (stage, partition) and not each.future.failed()
            ]
            for stage in Stage
        )
        end = len(found[partition]) - len(last)
        rest = found[partition][len(first) : end]
        is_right = (found[partition][: len(first)], found[partition][end:]) == (first, last)
        # What several processes appended beside each other can be in any order: each one's is in its own.
        possible = [[beside], *(_possible(told, partition) for told in victims)]
        for of in possible:
            theirs = [value for value in rest if value in of[-1]]
            rest = [value for value in rest if value not in of[-1]]
            is_right = is_right and theirs in of
        if rest or not is_right:
            wrong.append(f"partition {partition}: {found[partition]} is not {first} + one each of {possible} + {last}")
    return wrong


def _possible(told: Told, partition: int) -> list[list[str]]:
    """Return which records of a victim a partition can have, the most last."""
    known = [value for of, value in told.known if of == partition]
    doubtful = [value for of, value in told.doubtful if of == partition]
    return [[*known, *doubtful[:count]] for count in range(len(doubtful) + 1)]
