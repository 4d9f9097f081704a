"""Rows of columns shared out among partitions, in C: what `shmaccum.record.shares` does, in one pass over the rows."""

from libc.stdint cimport int64_t


def fast_total_and_largest(const int64_t[::1] sizes not None):
    """What `shmaccum.record.shares.total_and_largest` does."""
    cdef int64_t total = 0, largest = 0
    cdef Py_ssize_t row
    for row in range(sizes.shape[0]):
        total += sizes[row]
        largest = max(largest, sizes[row])
    return total, largest


def fast_stops(const int64_t[::1] sizes not None, list shares):
    """What `shmaccum.record.shares.stops_of_shares` does."""
    cdef int64_t end = 0, before = 0
    cdef Py_ssize_t row = 0
    cdef list stops = []
    for share in shares:
        end += share
        while before < end and row < sizes.shape[0]:
            before += sizes[row]
            row += 1
        stops.append(row)
    return stops


def fast_group(const int64_t[::1] partitions not None, int64_t[::1] order not None, int64_t[::1] ends not None):
    """Store the rows' numbers, grouped by partition, and where each partition's group ends.

    False, with nothing of use stored, where a row's partition is none of those that there are ``ends`` for.

    Args:
        partitions: of each row.
        order: as many numbers.
        ends: as many zeros as there are partitions.
    """
    cdef Py_ssize_t row, number
    cdef int64_t end, start = 0
    if order.shape[0] != partitions.shape[0]:
        raise IndexError(f"{order.shape[0]} numbers of {partitions.shape[0]} rows")
    for row in range(partitions.shape[0]):
        if not 0 <= partitions[row] < ends.shape[0]:
            return False
        ends[partitions[row]] += 1
    for number in range(ends.shape[0]):
        start, ends[number] = start + ends[number], start
    for row in range(partitions.shape[0]):
        end = ends[partitions[row]]
        order[end] = row
        ends[partitions[row]] = end + 1
    return True
