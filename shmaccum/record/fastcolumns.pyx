"""Columns of records in C, a row at a time: hashed, measured, and written from where Arrow has them to where they go.

What `columns_even`, `columns_joined` and `murmur2_columns` do, in one pass over the rows and without anything in
between. No memory is read or written here that was not checked right before: a cell by the lengths of the buffers that
it is in, a row by their number, a record by the end of the memory that it goes to. What was checked earlier does not
count, for the memory may be somebody else's who changes it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from shmaccum.errors import SerializationError
from shmaccum.record.murmur2 import MULTIPLIER, SEED
from shmaccum.record.varint cimport put_varint, varint_size

cdef uint32_t _SEED = SEED
cdef uint32_t _MULTIPLIER = MULTIPLIER
cdef const uint8_t *NO_HEADERS = b"\0"


# --- cells ------------------------------------------------------------------------------------------------


cdef class FastCells:
    """The cells of a binary column, where Arrow has them.

    Args:
        count: how many.
        before: cells of the buffers that are in front of the first one.
        width: bytes of an offset, 4 or 8; 0 where there are none, for all cells have the same size.
        fixed_size: that size.
        valid: buffer of a bit a cell, which is 0 for a null; None: there is no null.
        offsets: buffer of where each cell begins, and the last one ends.
        data: buffer of the cells' bytes; None: there are none.

    Raises:
        SerializationError: a buffer is too short for so many.
    """

    def __cinit__(
        self, Py_ssize_t count, Py_ssize_t before, int width, Py_ssize_t fixed_size, valid, offsets, data
    ):
        if valid is not None:
            PyObject_GetBuffer(valid, &self._valid, PyBUF_SIMPLE)
        if offsets is not None:
            PyObject_GetBuffer(offsets, &self._offsets, PyBUF_SIMPLE)
        if data is not None:
            PyObject_GetBuffer(data, &self._data, PyBUF_SIMPLE)
        cdef Py_ssize_t least = 1 << 48  # more than there is memory, and products of it are no overflow
        if not (0 <= count < least and 0 <= before < least and width in (0, 4, 8) and 0 <= fixed_size < 1 << 31):
            raise ValueError(f"no column has {count} cells behind {before}, offsets of {width}, sizes of {fixed_size}")
        self._count, self._before, self._width, self._fixed_size = count, before, width, fixed_size
        cdef Py_ssize_t end = before + count
        if count and (
            (valid is not None and self._valid.len < (end + 7) // 8)
            or (width and self._offsets.len // width < end + 1)
            or (not width and fixed_size and self._data.len // fixed_size < end)
        ):
            raise SerializationError(f"a column's buffers are too short for {end} rows")

    def __dealloc__(self):
        PyBuffer_Release(&self._valid)
        PyBuffer_Release(&self._offsets)
        PyBuffer_Release(&self._data)

    cdef bint find(self, Py_ssize_t row, Cell *cell) noexcept:
        """Find a cell; False where there is no such row, or its bytes are not in the column's memory."""
        cdef int32_t short_ends[2]
        cdef int64_t ends[2]
        if row < 0 or row >= self._count:
            return False
        row += self._before
        if self._valid.buf != NULL and not (<const uint8_t *>self._valid.buf)[row >> 3] >> (row & 7) & 1:
            cell.size = -1
            return True
        if self._width == 4:
            memcpy(short_ends, <const uint8_t *>self._offsets.buf + 4 * row, 8)
            ends[0], ends[1] = short_ends[0], short_ends[1]
        elif self._width == 8:
            memcpy(ends, <const uint8_t *>self._offsets.buf + 8 * row, 16)
        else:
            ends[0], ends[1] = row * self._fixed_size, (row + 1) * self._fixed_size
        if ends[0] < 0 or ends[1] < ends[0] or ends[1] > self._data.len:
            return False
        cell.data = <const uint8_t *>self._data.buf + ends[0]
        cell.size = ends[1] - ends[0]
        return True

    def partitions(self, int64_t[::1] partitions, uint32_t partition_count):
        """Store the partition of each cell, a key, as `partition_for_key` gives it; -1 for a null.

        Raises:
            SerializationError: a cell is not in the column's memory.
        """
        cdef Py_ssize_t row
        cdef Cell key
        if partition_count == 0:
            raise ZeroDivisionError("a topic has a partition at least")
        for row in range(partitions.shape[0]):
            if not self.find(row, &key):
                raise outside(row)
            partitions[row] = -1 if key.size < 0 else (murmur2(key.data, key.size) & 0x7FFFFFFF) % partition_count


cdef outside(Py_ssize_t row):
    return SerializationError(f"row {row} of a column is not in the column's memory: its offsets are wrong")


cdef inline uint32_t murmur2(const uint8_t *data, Py_ssize_t size) noexcept:
    """The hash of `shmaccum.record.murmur2`, as the 32 bits that it has."""
    cdef uint32_t digest = _SEED ^ <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        word = data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        word *= _MULTIPLIER
        word ^= word >> 24
        digest = (digest * _MULTIPLIER) ^ (word * _MULTIPLIER)
        data += 4
        size -= 4
    if size:
        word = data[0]
        if size > 1:
            word |= <uint32_t>data[1] << 8
        if size > 2:
            word |= <uint32_t>data[2] << 16
        digest = (digest ^ word) * _MULTIPLIER
    digest = (digest ^ digest >> 13) * _MULTIPLIER
    return digest ^ digest >> 15


cdef inline uint8_t *put_field(uint8_t *at, const Cell *field) noexcept:
    at = put_varint(at, field.size)
    if field.size > 0:
        memcpy(at, field.data, field.size)
        at += field.size
    return at


# --- records ----------------------------------------------------------------------------------------------


cdef class FastBodies:
    """The bodies of a column of records.

    Args:
        key: of each; None: no record has a key.
        value: the same for the values.
        headers: the header section of each, encoded; None: no record has headers.
    """

    def __cinit__(self, FastCells key, FastCells value, FastCells headers):
        self._key, self._value, self._headers = key, value, headers

    cdef bint find(self, Py_ssize_t row, Body *body) noexcept:
        """Find what the body of a record is made of; False where that is not there."""
        body.key.size = body.value.size = -1
        body.headers.data, body.headers.size = NO_HEADERS, 1
        if self._key is not None and not self._key.find(row, &body.key):
            return False
        if self._value is not None and not self._value.find(row, &body.value):
            return False
        if self._headers is not None and not (self._headers.find(row, &body.headers) and body.headers.size > 0):
            return False
        body.size = varint_size(body.key.size) + varint_size(body.value.size) + body.headers.size
        body.size += max(body.key.size, 0) + max(body.value.size, 0)
        return True

    def body_sizes(self, int64_t[::1] sizes):
        """Store the bytes of each body.

        Raises:
            SerializationError: a record is not in the columns' memory.
        """
        cdef Py_ssize_t row
        cdef Body body
        for row in range(sizes.shape[0]):
            if not self.find(row, &body):
                raise outside(row)
            sizes[row] = body.size


def fitting(const int64_t[::1] body_sizes, Py_ssize_t overhead, Py_ssize_t room):
    """`ColumnBodies.fitting`, of bodies of these sizes."""
    cdef Py_ssize_t row = 0
    while row < body_sizes.shape[0] and body_sizes[row] + overhead <= room:
        room -= body_sizes[row] + overhead
        row += 1
    return row


def batch_starts(const int64_t[::1] body_sizes, Py_ssize_t first, Py_ssize_t overhead, Py_ssize_t room):
    """`ColumnBodies.batch_starts`, of bodies of these sizes."""
    cdef list starts = []
    cdef Py_ssize_t row, left = -1
    for row in range(first, body_sizes.shape[0]):
        left -= body_sizes[row] + overhead
        if left < 0:
            starts.append(row)
            left = room - body_sizes[row] - overhead
    return starts


cdef class FastBatches:
    """The records of some batches, as they are to be written: a `ReadyBatches`.

    Args:
        records: where they are from.
        rows: the row of each record.
        body_sizes: bytes of each body.
        timestamps: of each record, milliseconds since the epoch.
        starts: the first record of each batch.
        stop: the record behind the last.
        first_offset: place of the first record in the first batch; the others begin with their first record.
        first_base: base timestamp of the first batch; that of the others is their first record's.
    """

    def __cinit__(
        self,
        FastBodies records,
        const int64_t[::1] rows,
        const int64_t[::1] body_sizes,
        const int64_t[::1] timestamps,
        list starts,
        Py_ssize_t stop,
        Py_ssize_t first_offset,
        int64_t first_base,
    ):
        if stop > rows.shape[0] or stop > body_sizes.shape[0] or stop > timestamps.shape[0]:
            raise IndexError(f"there are no {stop} records")
        self._records, self._rows, self._timestamps = records, rows, timestamps
        self._starts, self._stop, self._first_offset, self._first_base = starts, stop, first_offset, first_base
        self.sizes, self.largest = [], []
        cdef Py_ssize_t number, row, offset, size, total, largest
        cdef Extent extent
        for number in range(len(starts)):
            extent = self._extent(number)
            offset, total, largest = extent.offset, 0, 0
            for row in range(extent.first, extent.stop):
                size = 1 + varint_size(timestamps[row] - extent.base) + varint_size(offset) + body_sizes[row]
                size += varint_size(size)
                total += size
                largest = max(largest, size)
                offset += 1
            self.sizes.append(total)
            self.largest.append(largest)

    cdef Extent _extent(self, Py_ssize_t number) except *:
        cdef Extent extent
        extent.first = self._starts[number]
        extent.stop = self._starts[number + 1] if number + 1 < len(self._starts) else self._stop
        extent.offset = 0 if number else self._first_offset
        extent.base = self._timestamps[extent.first] if number else self._first_base
        return extent

    def write(self, memory, list places, Py_ssize_t first=0):
        """Write the records of batches.

        Args:
            memory: to write to.
            places: where in it the records of each batch begin.
            first: the number of the first of these batches.

        Raises:
            SerializationError: the columns, or where they are, are not as they were before.
        """
        cdef Py_buffer view
        cdef Py_ssize_t number, at, size
        PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
        try:
            for number in range(len(places)):
                at, size = places[number], self.sizes[first + number]
                if not (0 <= at <= view.len and 0 <= size <= view.len - at):
                    raise IndexError(f"no {size} bytes at {at} of {view.len}")
                self._write(<uint8_t *>view.buf + at, size, first + number)
        finally:
            PyBuffer_Release(&view)

    cdef _write(self, uint8_t *at, Py_ssize_t size, Py_ssize_t number):
        cdef Extent extent = self._extent(number)
        cdef Py_ssize_t offset = extent.offset, index
        cdef int64_t timestamp_delta
        cdef Body body
        cdef uint8_t *end = at + size
        for index in range(extent.first, extent.stop):
            if not self._records.find(self._rows[index], &body):
                raise outside(self._rows[index])
            timestamp_delta = self._timestamps[index] - extent.base
            size = 1 + varint_size(timestamp_delta) + varint_size(offset) + body.size
            if varint_size(size) + size > end - at:
                break
            at = put_varint(at, size)
            at[0] = 0  # attributes: none are defined
            at = put_varint(at + 1, timestamp_delta)
            at = put_varint(at, offset)
            at = put_field(at, &body.key)
            at = put_field(at, &body.value)
            memcpy(at, body.headers.data, body.headers.size)
            at += body.headers.size
            offset += 1
        if offset - extent.offset != extent.stop - extent.first or at != end:
            raise SerializationError("the memory of a column was changed while its rows were being written")

    def records(self, Py_ssize_t number):
        """Return the records of a batch in memory of their own."""
        memory = bytearray(self.sizes[number])
        self.write(memory, [0], number)
        return memoryview(memory)
