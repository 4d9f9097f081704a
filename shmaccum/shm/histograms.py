"""Counts values in the slab's histograms: times and sizes, of which people want percentiles.

A bucket's count is one store of one writer, so a histogram is never torn, and a death loses one value. Readers take no
lock: `shmaccum.shm.distribution`. A value is counted for every record, so this module is compiled where possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shmaccum._compiled import COMPILED
from shmaccum.shm.layout import EXACT, HISTOGRAM_BUCKETS, PARTS, Histogram
from shmaccum.shm.memory import SlabMemory

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_COMPILED: Final = COMPILED
_TOTAL: Final = Histogram.TOTAL
_LARGEST: Final = Histogram.LARGEST
_BUCKETS: Final = Histogram.BUCKETS
_ALL_BITS: Final = (1 << 64) - 1
_LAST_BUCKET: Final = HISTOGRAM_BUCKETS - 1
_EXACT: Final = EXACT
_PARTS: Final = PARTS
_LEAST_STEP: Final = 64
_MOST_SAMPLES: Final = 32


def count(memory: SlabMemory, at: int, value: int, times: int = 1) -> None:
    """Count a value in the histogram at a word index; ``times``: how many values it stands for."""
    octave, part = 0, value
    while part >= _EXACT:
        part >>= 1
        octave += 1
    bucket = octave * _PARTS + part
    if bucket > _LAST_BUCKET:
        bucket = _LAST_BUCKET
    # A damaged word can be at its limit: statistics wrap around, and never fail the call that they are about.
    place = at + _BUCKETS + bucket
    memory.words[place] = memory.words[place] + times & _ALL_BITS
    memory.words[at + _TOTAL] = memory.words[at + _TOTAL] + value * times & _ALL_BITS
    if value > memory.words[at + _LARGEST]:
        memory.words[at + _LARGEST] = value


def count_sample(memory: SlabMemory, at: int, values: npt.NDArray[np.int64], more: int) -> None:
    """Count some of many values for all of them, evenly spaced: to count all would cost too much.

    Args:
        memory: the slab's.
        at: word index of the histogram.
        values: one-dimensional, of any stride; not negative.
        more: added to each.
    """
    number = len(values)
    sample = values if _COMPILED else values.tolist()
    step, index = number // _MOST_SAMPLES, 0
    if step < _LEAST_STEP:
        step = _LEAST_STEP
    while index < number:  # compiled, a range with a step would be one of Python's
        count(memory, at, sample[index] + more, min(step, number - index))
        index += step
