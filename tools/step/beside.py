"""What the survivor does beside a victim that is stopped in the middle of an operation.

It does what other processes of a host do. Each call ends within `BOUND_S`. It succeeds, or its error names the victim,
which holds a lock. A call can also find no memory: the victim can have it. What the victim has is left alone, or it
fails when it goes on, or the log shows it.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from shmaccum.errors import BufferExhaustedError, LockTimeoutError
from tools.step.settings import HALF, LARGE, PARTITIONS, PATIENCE_S
from tools.step.survivor import Stage, Survivor

BOUND_S: Final = 3.0
"""Longest time of a call."""


def work_beside(survivor: Survivor, pid: int, wrong: list[str]) -> int:
    """Work while the victim is stopped; return how many calls had to wait for what it holds.

    Args:
        survivor: works.
        pid: of the victim.
        wrong: gets what goes wrong.
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
        if took_s > BOUND_S:
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
