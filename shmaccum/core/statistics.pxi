"""Counts values in the slab's histograms: times and sizes, of which people want percentiles.

A bucket's count is one store of one writer, so a histogram is never torn, and a death loses one value. Readers take no
lock: `shmaccum.shm.distribution`. A damaged word can be at its limit: statistics wrap around, and never fail the call
that they are about.
"""

cdef inline void histogram_count(HistogramEntry *histogram, uint64_t value, uint64_t times) noexcept nogil:
    """Count a value, which stands for so many, in a histogram that this process alone writes."""
    cdef uint64_t octave = 0, part = value, bucket
    while part >= HISTOGRAM_EXACT:
        part >>= 1
        octave += 1
    bucket = min(octave * HISTOGRAM_PARTS + part, <uint64_t>HISTOGRAM_BUCKETS - 1)
    store_relaxed(&histogram.buckets[bucket], load_relaxed(&histogram.buckets[bucket]) + times)
    store_relaxed(&histogram.total, load_relaxed(&histogram.total) + value * times)
    if value > load_relaxed(&histogram.largest):
        store_relaxed(&histogram.largest, value)


cdef HistogramEntry *_histogram_at(Segment segment, uint64_t at) except NULL:
    """Return the histogram at an index of the slab's words."""
    cdef const Regions *regions = &segment.geometry.regions
    cdef uint64_t histograms = SENDER_HISTOGRAMS + BROKERS
    histograms += segment.geometry.sizes.max_processes * PROCESS_HISTOGRAMS
    cdef uint64_t first = regions.histograms // WORD
    if at < first or (at - first) * WORD // sizeof(HistogramEntry) >= histograms:
        raise IndexError(f"no histogram begins at word {at}")
    return <HistogramEntry *>(segment.memory + at * WORD)


def count_value(Segment segment not None, uint64_t at, uint64_t value, uint64_t times=1):
    """Count a value in a histogram.

    Args:
        segment: the slab.
        at: word index of the histogram.
        value: to be counted.
        times: for how many values it stands; 0 only notes that it may be the largest.
    """
    histogram_count(_histogram_at(segment, at), value, times)
