"""Columns of records, row by row: hash, measure, and copy from Arrow's buffers into batches.

Each access to memory is checked right before it: a cell against its buffers' lengths, a row against the number of
rows, a record against the end of its target. Earlier checks do not count, because another thread or process can change
the memory. Nothing here reads or writes a word of the slab; bytes go into slots that only this process uses.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

# Rows and their targets are not in the processor's caches, and waiting for them would take a third of the time. So
# memory some records ahead is prefetched: a hint, which touches nothing.
cdef extern from *:
    """
    #if defined(__GNUC__)
    #define shmaccum_ask_for(at) (__builtin_prefetch(at), __builtin_prefetch((at) + 64))
    #else
    #define shmaccum_ask_for(at) ((void)0)
    #endif
    """
    void shmaccum_ask_for(const uint8_t *at) noexcept nogil

cdef enum:
    ROWS_AHEAD = 16
    BYTES_AHEAD = 2048


cdef struct Column:
    # A column of cells, in Arrow's buffers.
    const uint8_t *valid  # NULL if there is no null
    const uint8_t *offsets
    const uint8_t *data
    int64_t data_size
    int64_t before  # cells of the buffers before the first one
    int64_t count
    int64_t fixed_size
    int width  # bytes of an offset; 0: all cells have the fixed size; -1: there is no column, and all cells are null


cdef struct Cell:
    const uint8_t *data
    int64_t size  # -1 for a null


# --- cells ----------------------------------------------------------------------------------------


cdef inline bint _find_cell(const Column *column, int64_t row, Cell *cell) noexcept nogil:
    """Find a cell; return whether there is such a row, with all of its bytes in the column's memory."""
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


cdef object _refused(str what):
    """Return the error for columns that cannot be sent."""
    from shmaccum.errors import SerializationError

    return SerializationError(what)


cdef object _outside(int64_t row):
    return _refused(f"row {row} of a column is outside the column's memory: its offsets are wrong")


cdef object _changed():
    return _refused("the memory of a column was changed while its rows were being written")


@cython.final
cdef class Cells:
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

    cdef Column column
    cdef Py_buffer valid
    cdef Py_buffer offsets
    cdef Py_buffer data

    def __cinit__(self, int64_t count, int64_t before, int width, int64_t fixed_size, valid, offsets, data):
        cdef int64_t end, least = 1LL << 48  # more than any memory, and products of it do not overflow
        if valid is not None:
            PyObject_GetBuffer(valid, &self.valid, PyBUF_SIMPLE)
        if offsets is not None:
            PyObject_GetBuffer(offsets, &self.offsets, PyBUF_SIMPLE)
        if data is not None:
            PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        if not (0 <= count < least and 0 <= before < least and width in (0, 4, 8) and 0 <= fixed_size < 1 << 31):
            raise ValueError(f"no column has {count} cells after {before}, offsets of {width}, sizes of {fixed_size}")
        self.column.valid = <const uint8_t *>self.valid.buf
        self.column.offsets = <const uint8_t *>self.offsets.buf
        self.column.data, self.column.data_size = <const uint8_t *>self.data.buf, self.data.len
        self.column.before, self.column.count = before, count
        self.column.width, self.column.fixed_size = width, fixed_size
        end = before + count
        if count and (
            (valid is not None and self.valid.len < (end + 7) // 8)
            or (width and self.offsets.len // width < end + 1)
            or (not width and fixed_size and self.data.len // fixed_size < end)
        ):
            raise _refused(f"a column's buffers are too short for {end} rows")

    def __dealloc__(self):
        PyBuffer_Release(&self.valid)
        PyBuffer_Release(&self.offsets)
        PyBuffer_Release(&self.data)

    def partitions(self, int64_t[::1] partitions not None, uint64_t partition_count):
        """Store the partition of each cell, a key, by its hash; -1 for a null.

        Raises:
            SerializationError: a cell is outside the column's memory.
        """
        cdef Py_ssize_t row
        cdef Cell key
        if not partition_count:
            raise ZeroDivisionError("a topic must have at least one partition")
        for row in range(partitions.shape[0]):
            if not _find_cell(&self.column, row, &key):
                raise _outside(row)
            if key.size < 0:
                partitions[row] = -1
            else:
                partitions[row] = (_murmur2(key.data, key.size) & 0x7FFFFFFF) % partition_count


# --- records --------------------------------------------------------------------------------------


@cython.final
cdef class Bodies:
    """The bodies of a column of records: all of a record that does not depend on its place.

    Args:
        magic: the format of the records.
        key: of each; None: no record has a key.
        value: the same for the values.
        headers: the header section of each, encoded; None: no record has headers.
    """

    cdef tuple columns
    cdef int magic
    cdef Column key
    cdef Column value
    cdef Column headers

    def __cinit__(self, int magic, Cells key, Cells value, Cells headers):
        self.columns, self.magic = (key, value, headers), magic  # keeps the buffers
        self.key.width = self.value.width = self.headers.width = -1
        if key is not None:
            self.key = key.column
        if value is not None:
            self.value = value.column
        if headers is not None:
            self.headers = headers.column

    cdef inline bint find(self, int64_t row, Record *record) noexcept:
        """Find the parts of a record; return whether all of them are in the columns' memory."""
        cdef Cell key, value, headers
        if not (
            _find_cell(&self.key, row, &key)
            and _find_cell(&self.value, row, &value)
            and _find_cell(&self.headers, row, &headers)
        ):
            return False
        if headers.size == 0:  # the least section has their count
            return False
        record.body, record.key, record.value = NULL, key.data, value.data
        record.key_size, record.value_size = key.size, value.size
        record.headers = headers.data if headers.size > 0 else NULL
        record.headers_size = <uint64_t>headers.size
        record.body_size = body_size_of(record)
        return True

    def body_sizes(self, int64_t[::1] sizes not None):
        """Store the bytes of each body.

        Raises:
            SerializationError: a record is outside the columns' memory.
        """
        cdef Record record
        cdef Py_ssize_t row
        record.magic = self.magic
        for row in range(sizes.shape[0]):
            if not self.find(row, &record):
                raise _outside(row)
            sizes[row] = <int64_t>record.body_size


@cython.final
cdef class Rows:
    """Some records of these bodies, in some order, with their other fields.

    Args:
        bodies: of the records.
        numbers: of the body of each record.
        body_sizes: bytes of each body.
        timestamps: of each record, milliseconds since the epoch.
    """

    cdef Bodies bodies
    cdef const int64_t[::1] numbers
    cdef const int64_t[::1] body_sizes
    cdef const int64_t[:] timestamps

    def __init__(
        self,
        Bodies bodies not None,
        const int64_t[::1] numbers not None,
        const int64_t[::1] body_sizes not None,
        const int64_t[:] timestamps not None,
    ):
        if not (numbers.shape[0] == body_sizes.shape[0] == timestamps.shape[0]):
            raise IndexError(
                f"{numbers.shape[0]} records with {body_sizes.shape[0]} sizes, {timestamps.shape[0]} times"
            )
        self.bodies, self.numbers, self.body_sizes, self.timestamps = bodies, numbers, body_sizes, timestamps


@cython.final
cdef class RowBatches:
    """The records of some batches, to be written once `add_to` or `lay_out` has measured them.

    Args:
        rows: the records.

    Attributes:
        cuts: the first record of each batch, and the one after the last.
        sizes: bytes of each batch's records.
        largest: bytes in the largest record of each batch.
        base_timestamps: of each batch.
        max_timestamps: the largest timestamp of each batch's records.
    """

    cdef Rows rows
    cdef uint64_t first_offset
    cdef readonly list cuts
    cdef readonly list sizes
    cdef readonly list largest
    cdef readonly list base_timestamps
    cdef readonly list max_timestamps

    def __cinit__(self, Rows rows not None):
        if rows.bodies is None:
            raise ValueError("rows without bodies")
        self.rows = rows
        self.cuts, self.sizes, self.largest, self.base_timestamps, self.max_timestamps = [], [], [], [], []

    def add_to(self, int64_t room, uint64_t first_offset, int64_t base_timestamp):
        """Measure the first records for a batch that already has some; return how many fit.

        Args:
            room: free bytes of the batch.
            first_offset: number of its records.
            base_timestamp: of the batch.
        """
        self.first_offset = first_offset
        self.cuts.append(0)
        return self.measure(0, 0, room, first_offset, base_timestamp)

    def lay_out(self, Py_ssize_t first, int64_t room, Py_ssize_t most):
        """Measure records for new batches; return the first record after them.

        Args:
            first: the first record.
            room: bytes for records in a batch; a record that takes more gets its own batch.
            most: most batches.
        """
        if first < 0:
            raise IndexError(f"there is no record {first}")
        self.first_offset = 0
        self.cuts.append(first)
        while first < self.rows.numbers.shape[0] and len(self.sizes) < most:
            first = self.measure(first, 1, room, 0, self.rows.timestamps[first])
        return first

    cdef Py_ssize_t measure(
        self, Py_ssize_t row, Py_ssize_t least, int64_t room, uint64_t offset, int64_t base
    ) except -1:
        """Measure the records of a batch: as many as fit, but at least ``least``; return the one after the last."""
        cdef const int64_t[::1] body_sizes = self.rows.body_sizes
        cdef const int64_t[:] timestamps = self.rows.timestamps
        cdef int magic = self.rows.bodies.magic
        cdef int64_t size, total = 0, largest = 0, latest = -1
        least += row
        while row < body_sizes.shape[0]:
            size = <int64_t>record_size(magic, offset, timestamps[row], base, body_sizes[row])
            if row >= least and (size > room - total or offset >= COMMIT_COUNT_MASK):
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

    def write(self, memory, list places not None, Py_ssize_t first=0):
        """Write the records of batches.

        Args:
            memory: to write to.
            places: where the records of each batch begin in it.
            first: the number of the first of these batches.

        Raises:
            SerializationError: the columns' memory has changed since it was measured.
        """
        cdef Py_buffer view
        cdef Py_ssize_t number
        cdef int64_t at, size
        if not 0 <= first <= len(self.sizes) - len(places):
            raise IndexError(f"no {len(places)} batches from {first} of {len(self.sizes)}")
        PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
        try:
            for number in range(len(places)):
                at, size = places[number], self.sizes[first + number]
                if not (0 <= at <= view.len and 0 <= size <= view.len - at):
                    raise IndexError(f"no {size} bytes at {at} of {view.len}")
                self.write_one(<char *>view.buf + at, size, first + number)
        finally:
            PyBuffer_Release(&view)

    cdef int write_one(self, char *at, int64_t size, Py_ssize_t number) except -1:
        cdef const int64_t[::1] numbers = self.rows.numbers
        cdef const int64_t[:] timestamps = self.rows.timestamps
        cdef Py_ssize_t index, first = self.cuts[number], stop = self.cuts[number + 1]
        cdef uint64_t added, offset = 0 if number else self.first_offset
        cdef int64_t base = self.base_timestamps[number]
        cdef Bodies bodies = self.rows.bodies
        cdef Record record
        cdef Cell ahead
        cdef bint are_adjacent
        if not 0 <= first <= stop <= numbers.shape[0]:
            raise IndexError(f"no records {first} to {stop} of {numbers.shape[0]}")
        are_adjacent = first < stop and numbers[stop - 1] - numbers[first] == stop - 1 - first
        record.magic = bodies.magic
        for index in range(first, stop):
            if not bodies.find(numbers[index], &record):
                raise _outside(numbers[index])
            record.timestamp = timestamps[index]
            shmaccum_ask_for(<const uint8_t *>at + BYTES_AHEAD)
            if are_adjacent:
                shmaccum_ask_for(record.value + BYTES_AHEAD)
            elif index + ROWS_AHEAD < stop:
                _find_cell(&bodies.value, numbers[index + ROWS_AHEAD], &ahead)
                shmaccum_ask_for(ahead.data)
            added = record_write(at, <uint64_t>size, offset, base, &record)
            if not added:
                break
            at += added
            size -= <int64_t>added
            offset += 1
            first += 1
        if first != stop or size:
            raise _changed()
        return 0

    def records(self, Py_ssize_t number):
        """Return the records of a batch in private memory."""
        memory = bytearray(self.sizes[number] if 0 <= number < len(self.sizes) else 0)
        self.write(memory, [0], number)
        return memoryview(memory)


# --- headers --------------------------------------------------------------------------------------


cdef int64_t _header_size(const Column *names, const Column *values, int64_t number, Cell *name, Cell *value) noexcept:
    """Find a header; return its bytes, -1 if it is outside the columns' memory or has no name."""
    if not (_find_cell(names, number, name) and _find_cell(values, number, value)) or name.size < 0:
        return -1
    return <int64_t>(_field_size(V2, name.size) + _field_size(V2, value.size))


def header_sections(
    const int64_t[::1] counts not None, Cells names not None, Cells values not None, int64_t[::1] offsets not None
):
    """Encode the headers of rows: their count, then each one's name and value.

    Args:
        counts: headers of each row.
        names: of all headers, row by row.
        values: likewise.
        offsets: output, where each row's section begins, and where the last one ends.

    Returns:
        The sections, back to back.

    Raises:
        SerializationError: a header is outside the columns' memory, or has no name; or the memory has changed.
    """
    cdef Py_ssize_t row
    cdef int64_t index, size, number = 0, total = 0
    cdef Cell name, value
    cdef uint8_t *at
    cdef uint8_t *end
    if offsets.shape[0] != counts.shape[0] + 1:
        raise IndexError(f"room for {offsets.shape[0]} ends of {counts.shape[0]} rows")
    for row in range(counts.shape[0]):
        offsets[row] = total
        total += <int64_t>_varint_size(counts[row])
        for index in range(counts[row]):
            size = _header_size(&names.column, &values.column, number, &name, &value)
            if size < 0:
                raise _outside(row)
            total += size
            number += 1
    offsets[counts.shape[0]] = total
    sections = bytearray(total)
    at = <uint8_t *>PyByteArray_AS_STRING(sections)
    end = at + total
    number = 0
    for row in range(counts.shape[0]):
        if <int64_t>_varint_size(counts[row]) > end - at:
            raise _changed()
        at = _put_varint(at, counts[row])
        for index in range(counts[row]):
            size = _header_size(&names.column, &values.column, number, &name, &value)
            if not 0 <= size <= end - at:
                raise _changed()
            at = _put_field(_put_field(at, V2, name.data, name.size), V2, value.data, value.size)
            number += 1
    return sections


# --- shares ---------------------------------------------------------------------------------------


def least_and_largest(const int64_t[::1] sizes not None):
    """Return the smallest and the largest of at least one size."""
    cdef int64_t least, largest
    cdef Py_ssize_t row
    if not sizes.shape[0]:
        raise ValueError("no sizes")
    least = largest = sizes[0]
    for row in range(1, sizes.shape[0]):
        least = min(least, sizes[row])
        largest = max(largest, sizes[row])
    return least, largest


def stops_of_batches(const int64_t[::1] sizes not None, int64_t overhead, int64_t first_room, int64_t room):
    """Return the number after the last row of each batch, if rows fill one batch after the other.

    A row that is larger than a whole batch gets its own batch.

    Args:
        sizes: of the rows' bodies, in bytes; at least one.
        overhead: bytes that a record takes in addition to its body.
        first_room: bytes for records in the first batch.
        room: bytes for records in each of the others.
    """
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


def group(const int64_t[::1] partitions not None, int64_t[::1] order not None, int64_t[::1] ends not None):
    """Store the rows' numbers, grouped by partition, and where each partition's group ends.

    Args:
        partitions: of each row.
        order: output, one number for each row.
        ends: output, one zero for each partition.

    Returns:
        Whether all partitions are among ``ends``; if not, nothing useful is stored.
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
