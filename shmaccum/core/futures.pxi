"""Futures of appended records, which resolve when their batch completes.

As in Kafka (``ProduceRequestResult``, ``FutureRecordMetadata``), one result object stands for a whole batch. A record's
future is that object and the record's index in the batch, so completing a batch resolves a thousand futures at once.
Futures are private to the process that appended; the slab has no word of them.

A split batch completes part by part, from its front to its end; every other batch in one part.

No object reachable from a future leads back to a future. Callbacks live elsewhere (`Callbacks`), the waiter is a weak
reference, and each caller gets a new error, because a traceback leads to all that its frames hold. So no future is part
of a cycle, and the garbage collector skips futures, however many are kept.
"""

from shmaccum.cluster import RecordMetadata
from shmaccum.errors import IllegalStateError, ResultTimeoutError

cdef enum:
    KEY_SIZE_SHIFT = 32

cdef uint64_t VALUE_SIZE_MASK = 0xFFFFFFFF
cdef int64_t ALL_RECORDS = 0x7FFFFFFFFFFFFFFF

cdef object _new_tuple = tuple.__new__


@cython.final
cdef class Part:
    """Outcome of consecutive records of a batch.

    Attributes:
        first: index of the first of them.
        base_offset: its offset, or -1 where it is not known.
        append_time_ms: the broker's log append time, -1 where the log has the records' own time.
        failure: makes the error that they failed with; None if they are stored.
    """

    cdef readonly int64_t first
    cdef readonly int64_t base_offset
    cdef readonly int64_t append_time_ms
    cdef readonly object failure

    def __init__(self, int64_t first, int64_t base_offset, int64_t append_time_ms, failure):
        self.first, self.base_offset, self.append_time_ms, self.failure = first, base_offset, append_time_ms, failure


@cython.final
cdef class ProduceRequestResult:
    """The outcome, now or later, of one batch to which this process contributed.

    Args:
        topic_partition: where the batch goes.
        batch: its id.
        waiter: weak reference to the object that waits for it.
        lane: that it is in, as its entry + 1; 0 outside of transactions.

    Attributes:
        completed: how many records are complete, from the first on.
        last: outcome of the last of these; nearly always of the whole batch.
        earlier: outcomes of those before, in order; None if there are none.
    """

    cdef readonly object topic_partition
    cdef readonly uint64_t batch
    cdef readonly uint64_t lane
    cdef readonly int64_t completed
    cdef readonly Part last
    cdef readonly list earlier
    cdef object _waiter

    def __init__(self, topic_partition, uint64_t batch, waiter, uint64_t lane=0):
        self.topic_partition, self.batch, self.lane, self._waiter = topic_partition, batch, lane, waiter

    @property
    def done(self):
        """Whether all of the batch is complete."""
        return self.completed == ALL_RECORDS

    @property
    def waiter(self):
        """The object that waits for it.

        Raises:
            IllegalStateError: the producer no longer exists.
        """
        waiter = self._waiter()
        if waiter is None:
            raise IllegalStateError("the producer no longer exists: it cannot wait for this record, nor call back")
        return waiter

    def complete(self, Part part not None, int64_t records):
        """Store the outcome of ``records`` records, or of all that follow if 0; callbacks run later."""
        cdef list earlier = self.earlier
        if earlier is None and self.last is not None:
            earlier = []  # first: to make it can collect garbage, and so run code that reads the same completion
        if part.first < self.completed:
            return  # a duplicate, from a sender that took over
        if self.last is not None:
            if self.earlier is None:
                self.earlier = earlier
            self.earlier.append(self.last)
        self.last = part
        self.completed = part.first + records if records else ALL_RECORDS

    cdef Part part_of(self, int64_t index):
        """Return the outcome of a completed record."""
        cdef Part part = self.last
        cdef Py_ssize_t at = 0 if self.earlier is None else len(self.earlier)
        while index < part.first and at:
            at -= 1
            part = <Part>self.earlier[at]
        return part

    def parts_between(self, int64_t first, int64_t stop):
        """Return the outcomes of the completed ones among records first..stop: (first, stop, part) for each part."""
        cdef list between = []
        cdef int64_t begin, end
        cdef Part part, following = None
        parts = [] if self.last is None else [*(self.earlier or ()), self.last]
        for part in reversed(parts):
            begin, end = max(part.first, first), min(self.completed if following is None else following.first, stop)
            if begin < end:
                between.append((begin, end, part))
            following = part
        between.reverse()
        return between


@cython.final
@cython.no_gc
@cython.freelist(64)  # most are freed at once
cdef class FutureRecordMetadata:
    """Future of one record; asyncio code can ``await`` it.

    It has the methods of `concurrent.futures.Future` and of kafka-python's futures. An accepted record
    cannot be recalled: no future can be cancelled, and a cancelled ``await`` only stops waiting.

    Args:
        result: of its batch.
        index: the record's index in its batch.
        timestamp: the record's own.
        sizes: bytes of the serialized key, plus 1, in the upper 32 bits, and of the value in the lower; 0 for a null.
    """

    cdef object __weakref__
    cdef readonly ProduceRequestResult batch_result
    cdef readonly int64_t index
    cdef readonly int64_t timestamp
    cdef readonly uint64_t sizes

    def __init__(self, ProduceRequestResult result not None, int64_t index, int64_t timestamp, uint64_t sizes=0):
        self.batch_result, self.index, self.timestamp, self.sizes = result, index, timestamp, sizes

    def __reduce__(self):
        raise TypeError("a future cannot be pickled: it belongs to this process")

    cdef bint _is_done(self) noexcept:
        return self.index < self.batch_result.completed

    @property
    def topic_partition(self):
        """Where the record goes."""
        return self.batch_result.topic_partition

    @property
    def batch(self):
        """The id of its batch."""
        return self.batch_result.batch

    @property
    def is_done(self):
        """Whether the record is acknowledged or has failed. Only changes when the producer polls."""
        return self._is_done()

    @property
    def value(self):
        """Where the record was stored; None while it is pending, or if it failed."""
        return self.outcome()[1]

    def outcome(self):
        """Return `exception` and `value`."""
        cdef ProduceRequestResult result = self.batch_result
        cdef Part part
        cdef int64_t offset, timestamp
        if not self._is_done():
            return None, None
        part = result.part_of(self.index)
        if part.failure is not None:
            return part.failure(), None
        topic, partition = result.topic_partition
        offset = part.base_offset + self.index - part.first if part.base_offset >= 0 else -1
        timestamp = part.append_time_ms if part.append_time_ms >= 0 else self.timestamp
        key_size = <int64_t>(self.sizes >> KEY_SIZE_SHIFT) - 1
        value_size = <int64_t>(self.sizes & VALUE_SIZE_MASK) - 1
        # Bypasses its constructor: that would be a Python call for each record.
        return None, _new_tuple(RecordMetadata, (topic, partition, offset, timestamp, key_size, value_size))

    def succeeded(self):
        """Return whether the record is acknowledged."""
        return self._is_done() and self.batch_result.part_of(self.index).failure is None

    def failed(self):
        """Return whether the record failed."""
        return self._is_done() and self.batch_result.part_of(self.index).failure is not None

    def get(self, timeout=None):
        """Wait until the record is acknowledged; return where it is stored.

        Args:
            timeout: seconds; None for no limit (``delivery.timeout.ms`` bounds the wait).

        Raises:
            ResultTimeoutError: the time ran out; the record is still pending.
            IllegalStateError: the producer was closed while the record was pending.
            SenderError: the record is pending, but there is no sender, and none could be started.
            KafkaError: why the record failed.
        """
        self._wait(timeout)
        error, value = self.outcome()
        if error is not None:
            raise error
        return value

    cdef int _wait(self, timeout) except -1:
        if not self._is_done():
            waiter = self.batch_result.waiter
            if not waiter.wait_until(self.done, timeout):
                raise ResultTimeoutError(
                    f"no acknowledgement from {self.topic_partition} after waiting {timeout} s{waiter.trouble()}"
                )
        return 0

    def result(self, timeout=None):
        """Return the result: `get`."""
        return self.get(timeout)

    def exception(self, timeout=None):
        """Wait until the record is complete; return why it failed, None if it is acknowledged.

        Each call returns a new error. Errors about the wait are raised, as by `get`.
        """
        self._wait(timeout)
        return self.outcome()[0]

    def done(self):
        """Return `is_done`."""
        return self._is_done()

    def running(self):
        """Return whether the record is pending."""
        return not self._is_done()

    def cancel(self):
        """Return False: an accepted record cannot be recalled."""
        return False

    def cancelled(self):
        """Return False, see `cancel`."""
        return False

    def add_done_callback(self, function):
        """Call ``function(future)`` when the record is complete; at once if it is.

        It runs in the thread that next sends, polls, flushes or waits. If an event loop runs in the calling thread, it
        runs in that loop, soon, with no further call of this package.
        """
        self.batch_result.waiter.call_when_done(function, self)

    def __await__(self):
        """Wait in the running event loop; return and raise as `get`."""
        if not self._is_done():
            yield from self.batch_result.waiter.until_complete(self)
        return self.get(0)

    def add_callback(self, callback, *args, **kwargs):
        """Call ``callback(*args, metadata, **kwargs)`` when the record is acknowledged; return the future."""

        def on_delivery(error, metadata):
            if error is None:
                callback(*args, metadata, **kwargs)

        self.batch_result.waiter.call_back(on_delivery, self)
        return self

    def add_errback(self, errback, *args, **kwargs):
        """Call ``errback(*args, error, **kwargs)`` when the record fails; return the future."""

        def on_delivery(error, metadata):
            if error is not None:
                errback(*args, error, **kwargs)

        self.batch_result.waiter.call_back(on_delivery, self)
        return self
