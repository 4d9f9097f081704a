"""Columns of records in C, row by row: hash, measure, and copy from Arrow into batches.

It does the work of `joined` and `murmur2_columns` in one pass over the rows, without anything in between. It
checks memory right before each access: a cell against its buffers' lengths, a row against the number of rows, a record
against the end of its target. Earlier checks do not count, because another thread or process can change the memory.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from shmaccum.errors import SerializationError
from shmaccum.record.murmur2 import MULTIPLIER, SEED
from shmaccum.record.v2.varint cimport put_varint, varint_size

# Rows and their targets are not in the processor's caches, and waiting for them would take a third of the time. So
# memory some records ahead is prefetched: a hint, which touches nothing.
cdef extern from *:
    """
    #if defined(__GNUC__)
    #define ask_for(at) (__builtin_prefetch(at), __builtin_prefetch((at) + 64))
    #else
    #define ask_for(at) ((void)0)
    #endif
    """
    void ask_for(const uint8_t *at) noexcept

cdef enum:
    _ROWS_AHEAD = 16
    _BYTES_AHEAD = 2048

cdef uint32_t _SEED = SEED
cdef uint32_t _MULTIPLIER = MULTIPLIER


# --- cells ------------------------------------------------------------------------------------------------


cdef inline bint find_cell(const Column *column, Py_ssize_t row, Cell *cell) noexcept:
    """Find a cell; return False if there is no such row, or its bytes are outside the column's memory."""
    cdef int32_t short_ends[2]
    cdef int64_t ends[2]
    cell.data, cell.size = column.data, -1
    if column.width < 0:
        return True
    if row < 0 or row >= column.count:
        return False
    row += column.before
    if column.valid != NULL and not column.valid[row >> 3] >> (row & 7) & 1:
        return True
    if column.width == 4:
        memcpy(short_ends, column.offsets + 4 * row, 8)
        ends[0], ends[1] = short_ends[0], short_ends[1]
    elif column.width == 8:
        memcpy(ends, column.offsets + 8 * row, 16)
    else:
        ends[0], ends[1] = row * column.fixed_size, (row + 1) * column.fixed_size
    if ends[0] < 0 or ends[1] < ends[0] or ends[1] > column.data_size:
        return False
    cell.data = column.data + ends[0]
    cell.size = ends[1] - ends[0]
    return True


cdef class FastCells:
    """The cells of a binary column, in Arrow's buffers.

    Args:
        count: number of cells.
        before: cells of the buffers before the first one.
        width: bytes of an offset, 4 or 8; 0 if all cells have the same size, without offsets.
        fixed_size: that size.
        valid: buffer with a bit for each cell, 0 for a null; None: there is no null.
        offsets: buffer of where each cell begins, and the last one ends.
        data: buffer of the cells' bytes; None: there are none.

    Raises:
        SerializationError: a buffer is too short for these cells.
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
        cdef Py_ssize_t least = 1 << 48  # more than any memory, and products of it do not overflow
        if not (0 <= count < least and 0 <= before < least and width in (0, 4, 8) and 0 <= fixed_size < 1 << 31):
            raise ValueError(f"no column has {count} cells after {before}, offsets of {width}, sizes of {fixed_size}")
        self._column.valid = <const uint8_t *>self._valid.buf
        self._column.offsets = <const uint8_t *>self._offsets.buf
        self._column.data, self._column.data_size = <const uint8_t *>self._data.buf, self._data.len
        self._column.before, self._column.count = before, count
        self._column.width, self._column.fixed_size = width, fixed_size
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

    def partitions(self, int64_t[::1] partitions, uint32_t partition_count):
        """Store the partition of each cell, a key, as `partition_for_key` returns it; -1 for a null.

        Raises:
            SerializationError: a cell is outside the column's memory.
        """
        cdef Py_ssize_t row
        cdef Cell key
        if partition_count == 0:
            raise ZeroDivisionError("a topic must have at least one partition")
        for row in range(partitions.shape[0]):
            if not find_cell(&self._column, row, &key):
                raise outside(row)
            partitions[row] = -1 if key.size < 0 else (murmur2(key.data, key.size) & 0x7FFFFFFF) % partition_count


cdef outside(Py_ssize_t row):
    return SerializationError(f"row {row} of a column is outside the column's memory: its offsets are wrong")


cdef inline uint32_t murmur2(const uint8_t *data, Py_ssize_t size) noexcept:
    """Return the hash of `shmaccum.record.murmur2`, as 32 unsigned bits."""
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


cdef inline bint find_body(
    const Column *key, const Column *value, const Column *headers, Py_ssize_t row, Body *body
) noexcept:
    """Find the parts of a record's body; return False if one is outside its memory."""
    if not (find_cell(key, row, &body.key) and find_cell(value, row, &body.value)):
        return False
    if not find_cell(headers, row, &body.headers) or body.headers.size == 0:
        return False
    body.size = varint_size(body.key.size) + varint_size(body.value.size)
    # Without headers, one byte holds their count, 0.
    body.size += max(body.key.size, 0) + max(body.value.size, 0) + (body.headers.size if body.headers.size > 0 else 1)
    return True


cdef class FastBodies:
    """The bodies of a column of records.

    Args:
        key: of each; None: no record has a key.
        value: the same for the values.
        headers: the header section of each, encoded; None: no record has headers.
    """

    def __cinit__(self, FastCells key, FastCells value, FastCells headers):
        self._keys, self._values, self._header_sections = key, value, headers
        self._key.width = self._value.width = self._headers.width = -1
        if key is not None:
            self._key = key._column
        if value is not None:
            self._value = value._column
        if headers is not None:
            self._headers = headers._column

    def body_sizes(self, int64_t[::1] sizes not None):
        """Store the bytes of each body.

        Raises:
            SerializationError: a record is outside the columns' memory.
        """
        sizes[:] = (self._key.width < 0) + (self._value.width < 0) + (self._headers.width < 0)  # one byte for absence
        add_sizes(&self._key, sizes, True)
        add_sizes(&self._value, sizes, True)
        add_sizes(&self._headers, sizes, False)


cdef add_sizes(const Column *column, int64_t[::1] sizes, bint has_length):
    """Add the bytes of a column's cells, and of their lengths, which header sections already contain."""
    cdef Py_ssize_t row
    cdef Cell cell
    if column.width < 0:
        return
    for row in range(sizes.shape[0]):
        if not find_cell(column, row, &cell) or not (has_length or cell.size):
            raise outside(row)
        if has_length:
            sizes[row] += varint_size(cell.size)
        if cell.size > 0:
            sizes[row] += cell.size
        elif not has_length:
            sizes[row] += 1


cdef class FastRows:
    """Some records of these bodies, in some order, with their other fields.

    Args:
        bodies: of the records.
        numbers: of the body of each record.
        body_sizes: bytes of each body.
        timestamps: of each record, milliseconds since the epoch.
    """

    def __init__(
        self,
        FastBodies bodies not None,
        const int64_t[::1] numbers not None,
        const int64_t[::1] body_sizes not None,
        const int64_t[:] timestamps not None,
    ):
        if not (numbers.shape[0] == body_sizes.shape[0] == timestamps.shape[0]):
            raise IndexError(f"{numbers.shape[0]} records with {body_sizes.shape[0]} sizes, {timestamps.shape[0]} times")
        self._bodies, self._numbers, self._body_sizes, self._timestamps = bodies, numbers, body_sizes, timestamps

    def part(self, Py_ssize_t start, Py_ssize_t stop):
        """Return records ``start`` to ``stop``."""
        cdef FastRows rows = FastRows.__new__(FastRows)
        if not 0 <= start <= stop <= self._numbers.shape[0]:
            raise IndexError(f"no records {start} to {stop} of {self._numbers.shape[0]}")
        rows._bodies, rows._numbers = self._bodies, self._numbers[start:stop]
        rows._body_sizes, rows._timestamps = self._body_sizes[start:stop], self._timestamps[start:stop]
        return rows


cdef class FastBatches:
    """The records of some batches, to be written: a `ReadyBatches`, once `add_to` or `lay_out` has prepared it.

    Args:
        rows: the records.
    """

    def __cinit__(self, FastRows rows not None):
        self._rows = rows
        self.cuts, self.sizes, self.largest, self.base_timestamps, self.max_timestamps = [], [], [], [], []

    def add_to(self, Py_ssize_t room, Py_ssize_t first_offset, int64_t base_timestamp):
        """Measure the first records for a batch that already has some; return how many fit.

        Args:
            room: free bytes of the batch.
            first_offset: number of its records.
            base_timestamp: of the batch.
        """
        self._first_offset = first_offset
        self.cuts.append(0)
        return self._measure(0, 0, room, first_offset, base_timestamp)

    def lay_out(self, Py_ssize_t first, Py_ssize_t room, Py_ssize_t most):
        """Measure records for new batches; return the first record after them.

        Args:
            first: the first record.
            room: bytes for records in a batch; a record that takes more gets a batch of its own.
            most: most batches.
        """
        self._first_offset = 0
        self.cuts.append(first)
        while first < self._rows._numbers.shape[0] and len(self.sizes) < most:
            first = self._measure(first, 1, room, 0, self._rows._timestamps[first])
        return first

    cdef Py_ssize_t _measure(
        self, Py_ssize_t row, Py_ssize_t least, Py_ssize_t room, Py_ssize_t offset, int64_t base
    ) except -1:
        """Measure the records of a batch: as many as fit, but at least ``least``; return the one after the last."""
        cdef const int64_t[::1] body_sizes = self._rows._body_sizes
        cdef const int64_t[:] timestamps = self._rows._timestamps
        cdef Py_ssize_t size, total = 0, largest = 0
        cdef int64_t latest = -1
        least += row
        while row < body_sizes.shape[0]:
            size = 1 + varint_size(timestamps[row] - base) + varint_size(offset) + body_sizes[row]
            size += varint_size(size)
            if size > room - total and row >= least:
                break
            total += size
            largest, latest = max(largest, size), max(latest, timestamps[row])
            offset += 1
            row += 1
        self.cuts.append(row)
        self.sizes.append(total)
        self.largest.append(largest)
        self.base_timestamps.append(base)
        self.max_timestamps.append(latest)
        return row

    def write(self, memory, list places, Py_ssize_t first=0):
        """Write the records of batches.

        Args:
            memory: to write to.
            places: where the records of each batch begin in it.
            first: the number of the first of these batches.

        Raises:
            SerializationError: the columns' memory has changed since it was measured.
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
        cdef const int64_t[::1] rows = self._rows._numbers
        cdef const int64_t[:] timestamps = self._rows._timestamps
        cdef Py_ssize_t index, first = self.cuts[number], stop = self.cuts[number + 1]
        cdef Py_ssize_t offset = 0 if number else self._first_offset
        cdef int64_t timestamp_delta, base = self.base_timestamps[number]
        cdef FastBodies bodies = self._rows._bodies
        cdef Column key = bodies._key, value = bodies._value, headers = bodies._headers
        cdef Body body
        cdef Cell ahead
        cdef bint are_adjacent = first < stop and rows[stop - 1] - rows[first] == stop - 1 - first
        cdef uint8_t *end = at + size
        for index in range(first, stop):
            if not find_body(&key, &value, &headers, rows[index], &body):
                raise outside(rows[index])
            timestamp_delta = timestamps[index] - base
            size = 1 + varint_size(timestamp_delta) + varint_size(offset) + body.size
            if varint_size(size) + size > end - at:
                break
            ask_for(at + _BYTES_AHEAD)
            if are_adjacent:
                ask_for(body.value.data + _BYTES_AHEAD)
            elif index + _ROWS_AHEAD < stop:
                find_cell(&value, rows[index + _ROWS_AHEAD], &ahead)
                ask_for(ahead.data)
            at = put_varint(at, size)
            at[0] = 0  # attributes: none are defined
            at = put_varint(at + 1, timestamp_delta)
            at = put_varint(at, offset)
            at = put_field(at, &body.key)
            at = put_field(at, &body.value)
            if body.headers.size > 0:
                memcpy(at, body.headers.data, body.headers.size)
                at += body.headers.size
            else:
                at[0] = 0
                at += 1
            offset += 1
            first += 1
        if first != stop or at != end:
            raise SerializationError("the memory of a column was changed while its rows were being written")

    def records(self, Py_ssize_t number):
        """Return the records of a batch in private memory."""
        memory = bytearray(self.sizes[number])
        self.write(memory, [0], number)
        return memoryview(memory)
