"""Columns of records, row by row: hash, measure, and append from Arrow's buffers into batches.

Each access to memory is checked right before it: a cell against its buffers' lengths, a row against the number of
rows, a record against the end of its target. Earlier checks do not count, because another thread or process can change
the memory.

Rows are records: `append_run` takes the stores of ``append.pxi`` for each, with many under one acquisition of the
partition's lock. A death leaves the rows before it, as with records. Before the lock, `_fetch` reads a byte of each
page and cell of these rows, so that those of a memory-mapped file cause their page faults there.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define shmaccum_ask_for(at) (__builtin_prefetch(at), __builtin_prefetch((at) + 64))
    #else
    #define shmaccum_ask_for(at) ((void)0)
    #endif
    #define shmaccum_read(at) ((void)*(const volatile uint8_t *)(at))
    """
    void shmaccum_ask_for(const uint8_t *at) noexcept nogil
    void shmaccum_read(const uint8_t *at) noexcept nogil

cdef enum:
    BYTES_AHEAD = 2048  # prefetched of a batch: a hint, which touches nothing
    # Rows and bytes after which a section ends, of some 10 us, and a call: an event loop goes on after some 0.5 ms.
    ROWS_OF_A_SECTION = 256
    BYTES_OF_A_SECTION = 1 << 16
    ROWS_OF_A_CALL = 1 << 13
    BYTES_OF_A_CALL = 1 << 20


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


cdef struct Columns:
    # Columns of records: all of a record that does not depend on its place.
    int magic
    Column key
    Column value
    Column headers


cdef inline bint _set_body(const Columns *columns, int64_t row, Record *record) noexcept nogil:
    """Set the parts of a record; return whether all of them are in the columns' memory."""
    cdef Cell key, value, headers
    if not (
        _find_cell(&columns.key, row, &key)
        and _find_cell(&columns.value, row, &value)
        and _find_cell(&columns.headers, row, &headers)
    ):
        return False
    if headers.size == 0:  # the least section has their count
        return False
    record.magic, record.body, record.key, record.value = columns.magic, NULL, key.data, value.data
    record.key_size, record.value_size = key.size, value.size
    record.headers = headers.data if headers.size > 0 else NULL
    record.headers_size = <uint64_t>headers.size
    record.body_size = body_size_of(record)
    return True


cdef struct Run:
    # Rows that go to one partition, in their order.
    Columns columns
    int64_t count  # rows of the columns
    const int64_t *numbers  # of the rows to append, in the columns; NULL: all, in their order
    const int64_t *body_sizes  # as measured before
    const int64_t *timestamps
    int64_t timestamp_step  # 0: one for all
    # The first one that is not appended yet, and the end.
    int64_t next
    int64_t stop
    # The place behind those that `_fetch` has read.
    int64_t fetched
    # How many the last section has appended, the index of the first of these in the batch, and their bytes.
    int64_t appended
    uint64_t first
    uint64_t bytes


cdef inline int64_t _number_of(const Run *run, int64_t place) noexcept nogil:
    return place if run.numbers == NULL else run.numbers[place]


cdef inline bint _set_next(const Run *run, Record *record) noexcept nogil:
    """Set a record to the next row; return whether that is in the columns' memory, and as it was measured."""
    cdef int64_t number = _number_of(run, run.next)
    if not (0 <= number < run.count and _set_body(&run.columns, number, record)):
        return False
    record.timestamp = run.timestamps[number * run.timestamp_step]
    return record.timestamp >= 0 and <int64_t>record.body_size == run.body_sizes[number]


cdef inline void _fetch_cell(const Column *column, int64_t row) noexcept nogil:
    """Read a byte of each page of a cell: then its first bytes are in the processor's cache, too."""
    cdef Cell cell
    cdef int64_t at = 0
    if _find_cell(column, row, &cell) and cell.size > 0:
        while at < cell.size:
            shmaccum_read(cell.data + at)
            at += PAGE
        shmaccum_read(cell.data + cell.size - 1)


cdef void _fetch(Run *run) noexcept nogil:
    """Fetch the rows of the next section. They would be waited for one by one, and under the lock."""
    cdef int64_t stop = min(run.stop, run.next + ROWS_OF_A_SECTION), number, size = 0
    run.fetched = max(run.fetched, run.next)
    while run.fetched < stop and size < BYTES_OF_A_SECTION:
        number = _number_of(run, run.fetched)
        if not 0 <= number < run.count:
            return
        _fetch_cell(&run.columns.key, number)
        _fetch_cell(&run.columns.value, number)
        _fetch_cell(&run.columns.headers, number)
        size += run.body_sizes[number]
        run.fetched += 1


cdef int64_t _append_more(
    const Appending *producer, Contribution *contributions, uint64_t entry, Run *run, Record *record, int64_t most
) noexcept nogil:
    """Append rows behind the record just appended, all in its slot, by one store of the commit word; return how many.

    `record` is set to the last one tried, but for what it says of its batch.
    """
    cdef const Slots *slots = &producer.deques.slots
    cdef SlotHeader *header = header_of(slots, record.slot)
    cdef uint64_t commit = load_relaxed(&header.commit), size = commit >> COMMIT_SIZE_SHIFT
    cdef uint64_t index = commit >> 1 & COMMIT_COUNT_MASK, added, room, latest = 0, largest = 0
    cdef int64_t base_timestamp = <int64_t>load_relaxed(&header.base_timestamp), count = 0
    cdef HistogramEntry *sizes = <HistogramEntry *>producer.histograms + (
        SENDER_HISTOGRAMS + BROKERS + entry * PROCESS_HISTOGRAMS + RECORD_SIZES
    )
    cdef Written written
    cdef char *place
    if not _find_place(slots, &contributions[record.slot], record, size, &written):
        return 0
    place = slots.bytes + written.slot * slots.slot_size + written.begin
    room = slots.slot_size - written.begin
    written.size = 0
    while count < most and index + count < COMMIT_COUNT_MASK and _set_next(run, record):
        shmaccum_ask_for(<const uint8_t *>place + BYTES_AHEAD)
        added = record_write(place, room, index + count, base_timestamp, record)
        if not added:
            break
        place += added
        room -= added
        written.size += added
        latest, largest = max(latest, <uint64_t>record.timestamp), max(largest, added)
        histogram_count(sizes, added, 1)
        count += 1
        run.next += 1
        if run.next == run.stop:
            break
    if count:
        _commit(producer, header, &written, count, latest, largest, record)
        _count(producer, entry, count, written.size)
    run.bytes += written.size
    return count


cdef int append_run(
    const Appending *producer, const Queue *queue, Contribution *contributions, uint64_t entry, uint64_t ticket,
    Run *run, Record *record, Damage *damage
) noexcept nogil:
    """Append rows to the open batch of a partition; `record` is set to the first, and then to the last one tried.

    A row that cannot be read ends the section: the caller sees it next.
    """
    cdef bint is_news = False, is_full = False, is_due_earlier = False
    cdef int status = stripe_enter(&producer.deques, queue, ticket, damage)
    run.appended, run.bytes = 0, 0
    if status != LOCK_TAKEN:
        return status
    if not _is_leased(queue):
        status = APPEND_LEASE_OVER
    while status == LOCK_TAKEN and run.next < run.stop:
        if run.appended >= ROWS_OF_A_SECTION or run.bytes >= BYTES_OF_A_SECTION:
            break
        if run.appended and not _set_next(run, record):
            break
        status = append_to_open(producer, queue, contributions, entry, record, damage)
        is_news, is_full = is_news or record.is_news, is_full or record.is_full
        is_due_earlier = is_due_earlier or record.is_due_earlier
        if status == LOCK_TAKEN:
            if not run.appended:
                run.first = record.index
            run.appended += 1
            run.next += 1
            run.bytes += record.added
            if run.next < run.stop:
                run.appended += _append_more(
                    producer, contributions, entry, run, record, ROWS_OF_A_SECTION - run.appended
                )
                is_news, is_full = is_news or record.is_news, is_full or record.is_full
    record.is_news, record.is_full, record.is_due_earlier = is_news, is_full, is_due_earlier
    _leave(producer, queue, record, damage)
    return status


@cython.final
cdef class Bodies:
    """The bodies of a column of records: all of a record that does not depend on its place.

    Args:
        magic: the format of the records.
        key: of each; None: no record has a key.
        value: the same for the values.
        headers: the header section of each, encoded; None: no record has headers.
        sizes: output, the bytes of each body. It must not change any more.
        timestamps: of each record, milliseconds since the epoch; or a single one, for all.

    Raises:
        SerializationError: a record is outside the columns' memory.
    """

    cdef tuple kept  # their buffers
    cdef Columns columns
    cdef const int64_t[::1] sizes
    cdef const int64_t[::1] timestamps

    def __cinit__(
        self,
        int magic,
        Cells key,
        Cells value,
        Cells headers,
        int64_t[::1] sizes not None,
        const int64_t[::1] timestamps not None,
    ):
        cdef Record record
        cdef Py_ssize_t row
        self.kept, self.columns.magic = (key, value, headers), magic
        self.columns.key.width = self.columns.value.width = self.columns.headers.width = -1
        if key is not None:
            self.columns.key = key.column
        if value is not None:
            self.columns.value = value.column
        if headers is not None:
            self.columns.headers = headers.column
        if timestamps.shape[0] != 1 and timestamps.shape[0] != sizes.shape[0]:
            raise IndexError(f"{timestamps.shape[0]} timestamps of {sizes.shape[0]} records")
        self.sizes, self.timestamps = sizes, timestamps
        for row in range(sizes.shape[0]):
            if not _set_body(&self.columns, row, &record):
                raise _outside(row)
            sizes[row] = <int64_t>record.body_size


@cython.final
cdef class Rows:
    """Rows of columns on their way to a partition, and the batches that have them.

    Args:
        bodies: of the columns.
        order: the numbers of rows in the columns; None: they are in their own order.
        start: the place of the first one in the order.
        stop: the place behind the last one.

    Attributes:
        order: see above.
        results: of the batches that rows have been appended to, in their order.
        cuts: the place of the first row in each of these, and that behind the last one.
        firsts: the index of that first row's record in each of these batches.
        is_news: whether an append since `take_news` has made a new or full batch, or one due earlier.
    """

    cdef Run run
    cdef Bodies bodies
    cdef const int64_t[::1] numbers
    cdef readonly object order
    cdef readonly list results
    cdef readonly list cuts
    cdef readonly list firsts
    cdef readonly bint is_news
    cdef bint is_full
    cdef Py_ssize_t done

    def __cinit__(self, Bodies bodies not None, order, int64_t start, int64_t stop):
        cdef int64_t count = bodies.sizes.shape[0]
        self.bodies, self.order = bodies, order
        if order is not None:
            self.numbers = order
            count = self.numbers.shape[0]
        if not 0 <= start <= stop <= count:
            raise IndexError(f"no rows {start} to {stop} of {count}")
        self.run.columns, self.run.count = bodies.columns, bodies.sizes.shape[0]
        self.run.next, self.run.stop = start, stop
        self.results, self.cuts, self.firsts = [], [start], []
        if start < stop:
            self.run.numbers = NULL if order is None else &self.numbers[0]
            self.run.body_sizes, self.run.timestamps = &bodies.sizes[0], &bodies.timestamps[0]
            self.run.timestamp_step = bodies.timestamps.shape[0] > 1

    @property
    def left(self):
        """How many rows are not appended yet."""
        return self.run.stop - self.run.next

    def append(
        self,
        uint64_t partition,
        uint64_t lane,
        uint64_t lane_generation,
        Appender appender not None,
        queue not None,
        free_unused not None,
    ):
        """Append the next rows to open batches, and to new ones for which memory is free.

        It returns before all are appended if there is something to wait for, if the sender sleeps and a batch is full,
        or after many rows.

        Args:
            partition: as of `Appender.append`.
            lane: as of `Appender.append`.
            lane_generation: as of `Appender.append`.
            appender: of the accumulator.
            queue: the deque: its ``topic_partition`` and ``lane``.
            free_unused: frees slots that did not become a batch: `Appender.unused`.

        Returns:
            As `Appender.append`, of the last section, with the batch's result in place of a future.

        Raises:
            SerializationError: the columns' memory has changed; the rows before are appended.
            SlabDamagedError: the deque is damaged.
        """
        cdef Queue of
        cdef Record record
        cdef Damage damage = UNDAMAGED
        cdef Contributions contributions = appender.contributions
        cdef int64_t end = min(self.run.stop, self.run.next + ROWS_OF_A_CALL)
        cdef uint64_t bytes = 0
        cdef bint grows = True
        cdef int status = LOCK_TAKEN
        _set_queue(&of, &appender.producer.deques, partition, lane, lane_generation)
        memset(&record, 0, sizeof(Record))
        while status == LOCK_TAKEN and self.run.next < end and bytes < BYTES_OF_A_CALL:
            segment = appender._opened()
            if not _set_next(&self.run, &record):
                raise _changed()
            record.may_grow = True
            _fetch(&self.run)
            status = append_run(
                &appender.producer,
                &of,
                contributions.table,
                contributions.entry,
                ticket_of(segment),
                &self.run,
                &record,
                &damage,
            )
            bytes += self.run.bytes
            if self.run.appended:
                grows = True
                # Before any Python code, which can forget the batch's result.
                self._note(<ProduceRequestResult>contributions.by_slot[<Py_ssize_t>record.slot])
            self._note_news(&record)
            self.is_full = self.is_full or status == APPEND_NO_ROOM and record.is_news  # it has closed a batch
            if status == APPEND_GROW and grows:
                grows = self._grow(appender, segment, &record)
                status = LOCK_TAKEN
            elif status == APPEND_NO_ROOM and _set_next(&self.run, &record):
                status = self._begin(appender, segment, &of, &record, &damage, queue, free_unused)
                bytes += record.added
            # Not for a new batch alone: the sender would take it with the first row.
            if self.is_full and load_relaxed(&appender.producer.deques.superblock.sender_asleep):
                break
        return appender._outcome_of_rows(status, &record, &damage, partition)

    def note(self, FutureRecordMetadata future not None):
        """Note that the next row was appended as a single record."""
        self.run.next += 1
        self.run.appended, self.run.first = 1, <uint64_t>future.index
        self._note(future.batch_result)

    def next_record(self):
        """Return the timestamp of the next row, and its body in private memory.

        Raises:
            SerializationError: the columns' memory has changed.
        """
        cdef Record record
        cdef bytes body
        if self.run.next >= self.run.stop or not _set_next(&self.run, &record):
            raise _changed()
        body = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>record.body_size)
        _put_body(<uint8_t *>PyBytes_AS_STRING(body), &record)
        return record.timestamp, body

    def take_news(self):
        """Return whether a batch is full, or due earlier than before; `is_news` is false then."""
        is_full, self.is_full, self.is_news = self.is_full, False, False
        return bool(is_full)

    def is_done(self):
        """Return whether all rows that were appended are complete."""
        cdef Py_ssize_t done = self.done, count = len(self.results)
        while done < count and (<ProduceRequestResult>self.results[done]).completed >= (
            <int64_t>self.firsts[done] + <int64_t>self.cuts[done + 1] - <int64_t>self.cuts[done]
        ):
            done += 1
        self.done = done
        return done == count

    cdef int _note(self, ProduceRequestResult result) except -1:
        """Note the rows of the last section, and the batch that they are in."""
        cdef Py_ssize_t last = len(self.results) - 1
        cdef int64_t begin = self.run.next - self.run.appended
        if last >= 0 and self.results[last] is result and (
            <int64_t>self.firsts[last] + begin - <int64_t>self.cuts[last] == <int64_t>self.run.first
        ):
            self.cuts[last + 1] = self.run.next
            return 0
        self.firsts.append(<int64_t>self.run.first)
        self.cuts.append(self.run.next)
        self.results.append(result)
        return 0

    cdef void _note_news(self, const Record *record) noexcept:
        self.is_news = self.is_news or record.is_news
        self.is_full = self.is_full or record.is_full or record.is_due_earlier

    cdef bint _grow(self, Appender appender, Segment segment, const Record *record) noexcept:
        """Bring an open batch a free slot, as `append_growing`; return whether it has it."""
        cdef Handle handle
        cdef Damage found = UNDAMAGED  # found again by who allocates
        cdef bint grew = False
        handle.slot, handle.slots, handle.generation = record.slot, record.slots, record.generation
        pool_grow(&appender.pool.pool, ticket_of(segment), &handle, &grew, &found)
        return grew

    cdef int _begin(
        self, Appender appender, Segment segment, Queue *queue, Record *record, Damage *damage, of, free_unused
    ) except -1:
        """Append the next row as the first of a new batch, if memory for it is free; return a status."""
        cdef ProduceRequestResult result
        if not _may_contribute(&appender.producer, appender.contributions.entry):
            return APPEND_RING_UNREAD
        result = appender.begin_batch(segment, None, queue, of, record, damage)
        if result is not None:
            self.run.next += 1
            self.run.appended, self.run.first = 1, record.index
            self._note(result)
            self._note_news(record)
        if appender.unused:
            free_unused()
        return APPEND_NO_ROOM if result is None else LOCK_TAKEN


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
