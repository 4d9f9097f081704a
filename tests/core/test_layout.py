"""The layout of the core's structs: regions do not overlap, and each word has its writers."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from core_slabs import empty_segment
from hypothesis import given, settings
from hypothesis import strategies as st

from shmaccum import _core
from shmaccum._core import CACHE_LINE, LOCK_COUNT, MAX_PROCESSES, MAX_SLOTS, PAGE, WAITERS, WORD, Geometry
from shmaccum.abi import MAX_LANES
from shmaccum.shm.layout import OfProcess
from tools.generate_docs.layout import ENTRIES, SOURCE, structs_of

SMALL = Geometry(64, 8, max_processes=70, max_topics=4, max_partitions=4, max_lanes=4)
REGIONS = (
    *("superblock", "locks", "processes", "topics", "partitions", "lanes"),
    *("incidents", "brokers", "histograms", "waiters", "rings", "headers"),
)
WRITTEN = re.compile(r"\b(written|writes?|writer|guarded)\b", re.IGNORECASE)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_word_has_its_writers(name: str) -> None:
    """The layout says who writes each word, and under which lock: of the struct, of a group of words, or of one."""
    struct = structs_of(SOURCE.read_text())[name]
    is_said = bool(WRITTEN.search(struct.text))
    silent = []
    for word in struct.words:
        if not word.name:
            is_said = is_said or bool(WRITTEN.search(word.meaning))
        elif not is_said and not WRITTEN.search(word.meaning):
            silent.append(word.name)
    assert silent == []


def test_entries_fill_cache_lines() -> None:
    """So that processes with entries side by side do not write to the same line."""
    sizes = {region: empty_segment(SMALL).view(region).dtype.itemsize for region in REGIONS}
    assert {region for region, size in sizes.items() if size % CACHE_LINE} <= {"waiters", "rings", "histograms"}


geometries = st.builds(
    Geometry,
    slot_size=st.integers(1, 500).map(lambda words: words * WORD),
    slot_count=st.integers(1, 500),
    max_processes=st.integers(1, MAX_PROCESSES),
    max_topics=st.integers(1, 200),
    max_partitions=st.integers(1, 500),
    max_lanes=st.integers(1, MAX_LANES),
)


def begin(view: npt.NDArray[np.void]) -> int:
    address: int = view.__array_interface__["data"][0]
    return address


@settings(max_examples=30)
@given(geometries)
def test_every_region_begins_where_python_code_expects_it_and_overlaps_no_other(geometry: Geometry) -> None:
    segment = empty_segment(geometry)
    base = begin(segment.view("superblock"))
    views = {region: segment.view(region) for region in (*REGIONS, "bitmap") if region != "superblock"}
    assert {region: begin(view) - base for region, view in views.items()} == {
        region: getattr(geometry, region) for region in views
    }
    assert segment.view("headers").dtype.itemsize == geometry.slot_words * WORD
    assert segment.view("rings").shape == (geometry.max_processes, geometry.ring_length)
    regions = [
        (0, _core.Super.length * WORD),
        (geometry.settings, geometry.settings + 2 * _core.SETTINGS_SIZE),
        *((begin(view) - base, begin(view) - base + view.nbytes) for view in views.values()),
        (geometry.slots, geometry.slot(geometry.slot_count)),
    ]
    regions.sort()
    assert all(start < end for start, end in regions)
    assert all(end <= start for (_, end), (start, _) in pairwise(regions))
    assert all(start % CACHE_LINE == 0 for start, _ in regions)
    assert geometry.slots % PAGE == 0
    assert geometry.slot(geometry.slot_count) == geometry.total_size == segment.geometry.total_size
    last = (
        (geometry.lock(LOCK_COUNT), "locks"),
        (geometry.process(geometry.max_processes), "processes"),
        (geometry.topic(geometry.max_topics), "topics"),
        (geometry.partition(geometry.max_partitions), "partitions"),
        (geometry.lane(geometry.max_lanes), "lanes"),
        (geometry.waiter(WAITERS), "waiters"),
        (geometry.ring(geometry.max_processes), "rings"),
        (geometry.process_histogram(geometry.max_processes, OfProcess(0)), "histograms"),
        (geometry.header(geometry.slot_count), "headers"),
    )
    for word, region in last:
        assert word * WORD == getattr(geometry, region) + views[region].nbytes, region
    assert geometry.bitmap_size * 8 >= geometry.slot_count
    assert geometry.ring_length == geometry.slot_count + _core.PARTS_IN_FLIGHT
    assert geometry.contributor_words * 64 >= geometry.max_processes
    assert geometry.slot_words >= _core.Slot.CONTRIBUTORS + geometry.contributor_words


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("slot_size", value) for value in (0, -8, 12, 1 << 32)),
        *(("slot_count", value) for value in (0, MAX_SLOTS + 1)),
        *(("max_processes", value) for value in (0, MAX_PROCESSES + 1)),
        *(("max_topics", value) for value in (0, -1)),
        *(("max_partitions", value) for value in (0, 1 << 64)),
        ("max_lanes", MAX_LANES + 1),
    ],
)
def test_impossible_sizes_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be between .* not {value}"):
        Geometry(**({"slot_size": 64, "slot_count": 4} | {name: value}))


def test_the_largest_sizes_do_not_overflow() -> None:
    most = (1 << 32) - 8
    largest = Geometry(most, MAX_SLOTS, MAX_PROCESSES, (1 << 20) - 2, (1 << 32) - 1, MAX_LANES)
    assert most * MAX_SLOTS < largest.total_size < 1 << 63
    assert largest.ring_length > MAX_SLOTS
