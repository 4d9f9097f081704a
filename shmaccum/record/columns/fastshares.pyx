"""Shares out rows among partitions in C: `shmaccum.record.columns.shares` in one pass over the rows."""

from libc.stdint cimport int64_t


def fast_least_and_largest(const int64_t[::1] sizes not None):
    """Implement `shmaccum.record.columns.shares.least_and_largest`."""
    cdef int64_t least = sizes[0], largest = sizes[0]
    cdef Py_ssize_t row
    for row in range(1, sizes.shape[0]):
        least = min(least, sizes[row])
        largest = max(largest, sizes[row])
    return least, largest


def fast_stops(const int64_t[::1] sizes not None, int64_t overhead, int64_t first_room, int64_t room):
    """Implement `shmaccum.record.columns.shares.stops_of_batches`."""
    cdef int64_t left = first_room, size
    cdef Py_ssize_t row, start = 0
    cdef list stops = []
    for row in range(sizes.shape[0]):
        size = sizes[row] + overhead
        if size > left and row > start:
            stops.append(row)
            start, left = row, room
        left -= size
    stops.append(sizes.shape[0])
    return stops


def fast_group(const int64_t[::1] partitions not None, int64_t[::1] order not None, int64_t[::1] ends not None):
    """Store the rows' numbers, grouped by partition, and where each partition's group ends.

    Return False, with nothing useful stored, if a row's partition is outside ``ends``.

    Args:
        partitions: of each row.
        order: output, one number for each row.
        ends: output, one zero for each partition.
    """
    cdef Py_ssize_t row, number
    cdef int64_t end, start = 0
    if order.shape[0] != partitions.shape[0]:
        raise IndexError(f"room for {order.shape[0]} numbers of {partitions.shape[0]} rows")
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
