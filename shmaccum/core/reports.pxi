"""Delivery reports that wait until the program polls for them, as librdkafka has them.

`shmaccum.compat.confluent` is made of these: `Message` is a record with its report, and `Reports` has those of one
producer. No word of the slab is written here: all is memory of the process, and a forked child drops it.

A message is *pending*, then *due* once its record is complete, in whichever thread reads the completion, then *over*:
reported, refused or purged. Only `Reports.serve` calls callbacks, so an error that one raises reaches the caller of
``poll`` or ``flush``. The garbage collector skips messages, however many wait. So a message lets go of its callback
with its report; nothing else that it holds can lead back to it.
"""

cdef enum:
    MESSAGE_PENDING = 0
    MESSAGE_DUE = 1
    MESSAGE_OVER = 2


cdef double _monotonic_s() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double>now.tv_sec + <double>now.tv_nsec * 1e-9


@cython.final
cdef class Reports:
    """The messages of one producer that are not reported yet.

    Args:
        error_of: makes a client's error from one of ours.
        only_errors: whether callbacks are called for messages that failed, and for no others.

    Attributes:
        waiting: how many messages are not reported.
        due: those that are complete, in this order, among some that are over.
    """

    cdef readonly Py_ssize_t waiting
    cdef uint64_t epoch
    """How often `clear` was called: what began before it no longer counts."""
    cdef readonly object due
    cdef object error_of
    cdef bint only_errors

    def __init__(self, error_of not None, bint only_errors):
        from collections import deque

        self.error_of, self.only_errors, self.due = error_of, only_errors, deque()

    def serve(self):
        """Call the callbacks of all reports that are due; return how many reports there were.

        An error that a callback raises leaves the others due.
        """
        return self._serve()

    cdef Py_ssize_t _serve(self) except -1:
        cdef Message message
        cdef Py_ssize_t served = 0, due = len(self.due)
        while due and self.due:
            due -= 1
            message = self.due.popleft()
            if message.state == MESSAGE_DUE:
                served += 1
                message._end()
                callback, message.callback = message.callback, None
                if callback is not None:
                    error = message.error()
                    if error is not None or not self.only_errors:
                        callback(error, message)
        return served

    def clear(self):
        """Drop everything, in a forked child or for good: messages that began before are not reported."""
        self.epoch += 1
        self.waiting = 0
        self.due.clear()


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Message:
    """A message, as its callback gets it: ``confluent_kafka.Message``, with what a producer knows of it.

    Until it is reported, it is the ``on_delivery`` of its record.

    Args:
        reports: of its producer.
        topic, key, value: its own.
        headers: pairs of a name and bytes or None; None without.
        callback: called with (error, message) once it is reported; None for none.

    Attributes:
        began: monotonic seconds of ``produce``.
        thread: that sends it; 0 if none does.
        future: of the record, once it is accepted.
        is_pending: whether it is neither complete nor refused nor purged.
    """

    cdef Reports reports
    cdef object callback
    cdef object _topic
    cdef object _key
    cdef object _value
    cdef object _headers
    cdef object _error
    cdef object _metadata
    cdef double ended
    cdef int state
    cdef uint64_t epoch
    cdef public unsigned long thread
    cdef readonly double began
    cdef public FutureRecordMetadata future

    def __init__(self, Reports reports not None, topic, key, value, headers, callback):
        self._begin(reports, topic, key, value, headers, callback)

    cdef void _begin(self, Reports reports, topic, key, value, headers, callback) noexcept:
        self.reports, self._topic, self._key, self._value = reports, topic, key, value
        self._headers, self.callback = headers, callback
        self.began = _monotonic_s()
        self.epoch = reports.epoch
        reports.waiting += 1

    def __reduce__(self):
        raise TypeError("a Message cannot be pickled: it belongs to this process")

    cdef bint is_pending_of(self, Reports reports) noexcept:
        return self.state == MESSAGE_PENDING and self.reports is reports

    @property
    def is_pending(self):
        """Whether it is neither complete nor refused nor purged."""
        return self.state == MESSAGE_PENDING

    def __call__(self, error, metadata):
        """Make the report due, when the record is complete.

        `shmaccum.Producer.send` also calls this for a record that it refuses, in the same thread and before it returns.
        Its caller reports such a record, keeps it or raises.
        """
        if error is not None:
            if self.future is None and self.thread == PyThread_get_thread_ident():
                return
            error = self.reports.error_of(error)
        if self.state == MESSAGE_PENDING:
            self._metadata = metadata
            self.report(error)

    def report(self, error):
        """Make the report due. The first one counts: a message that is purged can be stored later."""
        if self.state == MESSAGE_PENDING:
            self._error = error
            self._complete(None)

    cdef int _complete(self, FutureRecordMetadata future) except -1:
        if self.state == MESSAGE_PENDING:
            if future is not None:
                self.future = future
            self.ended = _monotonic_s()
            self.state = MESSAGE_DUE
            if self.epoch == self.reports.epoch:
                self.reports.due.append(self)
        return 0

    def drop(self):
        """Report nothing: it was refused."""
        self._end()
        self.callback = None

    cdef void _end(self) noexcept:
        if self.state != MESSAGE_OVER:
            self.state = MESSAGE_OVER
            if self.epoch == self.reports.epoch:
                self.reports.waiting -= 1

    # --- for the callback ---------------------------------------------------------------------------

    cdef object _stored(self):
        """Return where it is stored; None if it is not, or if its report said so."""
        if self._metadata is None and self.state != MESSAGE_PENDING and self.future is not None and not self.error():
            self._metadata = self.future.outcome()[1]
        return self._metadata

    def topic(self):
        """Return the topic."""
        return self._topic

    def partition(self):
        """Return the partition; None if the message was never given one."""
        if self.future is not None:
            return self.future.batch_result.topic_partition.partition
        return None if self._metadata is None else self._metadata.partition

    def offset(self):
        """Return the offset in the partition; None if it is not stored, or no broker says where."""
        stored = self._stored()
        return None if stored is None or stored.offset < 0 else stored.offset

    def key(self):
        """Return the key."""
        return self._key

    def value(self):
        """Return the value."""
        return self._value

    def headers(self):
        """Return the headers; None without."""
        return self._headers or None

    def error(self):
        """Return why it is not stored; None if it is."""
        if self._error is None and self.state != MESSAGE_PENDING and self.future is not None and self.future.failed():
            self._error = self.reports.error_of(self.future.outcome()[0])
        return self._error

    def timestamp(self):
        """Return (1, milliseconds), (2, those of the broker's log append time), or (0, -1) if it is not stored."""
        cdef Part part
        stored = self._stored()
        if stored is None:
            return 0, -1
        if self.future is not None:
            part = self.future.batch_result.part_of(self.future.index)
            if part.append_time_ms >= 0:
                return 2, part.append_time_ms
        return 1, stored.timestamp

    def latency(self):
        """Return the seconds from `produce` to the acknowledgement."""
        return self.ended - self.began

    def leader_epoch(self):
        """Return None: it is not known here."""
        return None

    def __len__(self):
        return 0 if self._value is None else len(self._value)
