"""The path of a record from `Producer.send` into the slab, where no Python code has to run.

`RecordPath` takes a record of a topic that its producer knows, chooses the partition, and appends it to the open batch,
or begins another one. Where there is something to ask, to wait for or to refuse, it has done nothing, and Python code
goes on: `shmaccum.producer.record_path`. `PollingCalls` is what `shmaccum.compat.confluent` sends by.

It writes no word of the slab but by the sections of ``append.pxi``. All else here is memory of the process, which its
threads share under the GIL.
"""

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object value)
    bint PyBytes_CheckExact(object value)
    bint PyLong_CheckExact(object value)
    bint PyCallable_Check(object value)
    object PyUnicode_AsUTF8String(object text)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyBytes_FromStringAndSize(const char *data, Py_ssize_t size)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1


cdef enum:
    BURST_UNBOUNDED = -1

cdef int64_t ANY_PARTITION = -1  # librdkafka's
cdef uint64_t UNKNOWN = ALL_BITS
cdef uint32_t MURMUR2_SEED = 0x9747B28C
cdef uint32_t MURMUR2_MULTIPLIER = 0x5BD1E995


cdef uint32_t _murmur2(const uint8_t *data, uint64_t size) noexcept nogil:
    cdef uint32_t digest = MURMUR2_SEED ^ <uint32_t>size
    cdef uint32_t four = 0
    while size >= 4:
        memcpy(&four, data, 4)  # little-endian, as all machines are on which this runs
        four *= MURMUR2_MULTIPLIER
        digest = digest * MURMUR2_MULTIPLIER ^ (four ^ four >> 24) * MURMUR2_MULTIPLIER
        data += 4
        size -= 4
    if size:
        if size == 3:
            digest ^= <uint32_t>data[2] << 16
        if size >= 2:
            digest ^= <uint32_t>data[1] << 8
        digest = (digest ^ data[0]) * MURMUR2_MULTIPLIER
    digest = (digest ^ digest >> 13) * MURMUR2_MULTIPLIER
    return digest ^ digest >> 15


def murmur2(bytes data not None):
    """Return Kafka's hash of a key (``Utils.murmur2``), as in Java: a signed number of 32 bits."""
    return <int32_t>_murmur2(<const uint8_t *>PyBytes_AS_STRING(data), <uint64_t>PyBytes_GET_SIZE(data))


cdef uint64_t _partition_for_key(bytes key, uint64_t count):
    """Return the partition of a serialized key (``BuiltInPartitioner.partitionForKey``)."""
    cdef uint32_t digest = _murmur2(<const uint8_t *>PyBytes_AS_STRING(key), <uint64_t>PyBytes_GET_SIZE(key))
    return (digest & 0x7FFFFFFF) % count


def v2_headers(headers):
    """Return the part of a record of format 2 behind its value: the number of headers, then each name and value.

    Args:
        headers: a list, tuple or dict of pairs: a name, which is text, and bytes, text or None.

    Returns:
        The bytes; None if anything has another type, or is text without a form in UTF-8.
    """
    return _v2_headers(headers)


cdef bytes _v2_headers(headers):
    cdef const char *data
    cdef Py_ssize_t size = 0
    cdef uint64_t whole
    cdef uint8_t *at
    cdef tuple pair
    if type(headers) is dict:
        headers = list((<dict>headers).items())
    elif type(headers) is not list and type(headers) is not tuple:
        return None
    whole = _varint_size(len(headers))
    for each in headers:
        if type(each) is not tuple or len(<tuple>each) != 2:
            return None
        pair = each
        if not PyUnicode_CheckExact(pair[0]):
            return None
        for field in pair:
            if field is None:
                whole += 1
                continue
            data = _header_field(field, &size)
            if data == NULL:
                return None
            whole += _field_size(V2, size)
    encoded = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>whole)
    at = _put_varint(<uint8_t *>PyBytes_AS_STRING(encoded), len(headers))
    for each in headers:
        for field in <tuple>each:
            size, data = -1, NULL
            if field is not None:
                data = _header_field(field, &size)
            at = _put_field(at, V2, <const uint8_t *>data, size)
    return encoded


cdef const char *_header_field(field, Py_ssize_t *size) noexcept:
    """Return a name or value as bytes, and their number; NULL if it is neither bytes nor text with a form in UTF-8."""
    if PyBytes_CheckExact(field):
        size[0] = PyBytes_GET_SIZE(field)
        return PyBytes_AS_STRING(field)
    if not PyUnicode_CheckExact(field):
        return NULL
    try:
        return PyUnicode_AsUTF8AndSize(field, size)
    except UnicodeEncodeError:
        return NULL


cdef class StickyPartition:
    """The partition of a topic for the records of one producer that have neither partition nor key.

    Args:
        sticky_bytes: bytes after which to switch to another one.

    Attributes:
        partition: its number.
        produced: bytes since the last switch.
    """

    cdef public Py_ssize_t partition
    cdef public int64_t produced
    cdef readonly int64_t sticky_bytes

    def __init__(self, sticky_bytes):
        self.sticky_bytes = sticky_bytes

    def note(self, int64_t size):
        """Count the bytes that a record added to its batch; return whether to switch at once.

        That is at twice the sticky bytes. Where other processes' records keep a batch open, this process might never
        see it full (``BuiltInPartitioner.updatePartitionInfo`` has the same limit).
        """
        return self._note(size)

    cdef bint _note(self, int64_t size) noexcept:
        self.produced += size
        return self.produced >= 2 * self.sticky_bytes

    def switch(self):
        """Choose another partition."""
        raise NotImplementedError


@cython.final
cdef class Destination:
    """The partitions of a topic, as they were at a generation of the tables.

    Args:
        generation: of the tables.
        count: how many partitions the topic has.
        sticky: for records with neither partition nor key; None if there was none so far.
        lane: entry + 1 of the lane that the partitions are in; 0 outside of transactions.
        lane_generation: that the lane must have.

    Attributes:
        generation, sticky: see above.
    """

    cdef readonly uint64_t generation
    cdef uint64_t count
    cdef uint64_t lane
    cdef uint64_t lane_generation
    cdef uint64_t *entries
    cdef readonly StickyPartition sticky

    def __cinit__(
        self,
        uint64_t generation,
        Py_ssize_t count,
        StickyPartition sticky=None,
        uint64_t lane=0,
        uint64_t lane_generation=0,
    ):
        self.generation, self.sticky, self.lane, self.lane_generation = generation, sticky, lane, lane_generation
        self.count = <uint64_t>count
        self.entries = <uint64_t *>PyMem_Malloc((self.count + 1) * sizeof(uint64_t))
        if self.entries == NULL:
            raise MemoryError
        memset(self.entries, 0xFF, self.count * sizeof(uint64_t))  # UNKNOWN

    def __dealloc__(self):
        PyMem_Free(self.entries)

    def lead(self, uint64_t number, uint64_t entry):
        """Lead records of a partition to an entry of the table of partitions."""
        if number >= self.count:
            raise IndexError(f"partition {number} of {self.count}")
        self.entries[number] = entry

    cdef int set_queue(self, Queue *queue, const Deques *deques, uint64_t number) except -1:
        """Set the deque of a partition, by its number, that records lead to."""
        return _set_queue(queue, deques, self.entries[number], self.lane, self.lane_generation)


cdef class RecordPath:
    """What a producer appends its records by.

    Args:
        appender: of its accumulator.
        guard: the producer's.
        pending: reads this process's completions: ``poll()``, ``read()``.
        max_body_size: most bytes of a record's body.
        ignores_keys: whether the partition does not depend on the key.
        is_direct: whether records are appended as they are given: no serializer, interceptor or transaction sees them.
        has_interceptors: whether there are interceptors; Python code sends all records then.
        serializers: ``key`` and ``value``, each with ``serialize(topic, data)``.
        transactions: ``current`` is the open one; None without.
        partitions: has the deques, ``by_entry``: each with its ``topic_partition`` and ``lane``.

    Attributes:
        burst: calls of an event loop that may follow until other tasks get their turn; below 0 without a bound.
    """

    cdef Appender appender
    cdef CallGuard guard
    cdef object pending
    cdef object partitions
    cdef uint64_t max_body_size
    cdef bint ignores_keys
    cdef bint is_direct
    cdef bint has_interceptors
    cdef object serializers
    cdef object transactions
    cdef dict destinations
    """The topics that records can go to without a question, by name."""
    cdef object last_topic
    """The object that was the last record's topic: nearly always the next one's. None after a change of topics."""
    cdef Destination last_destination
    cdef public int64_t burst

    def __init__(
        self,
        Appender appender not None,
        CallGuard guard not None,
        pending not None,
        uint64_t max_body_size,
        bint ignores_keys,
        bint is_direct,
        bint has_interceptors,
        serializers not None,
        transactions,
        partitions,
    ):
        self.appender, self.guard, self.pending = appender, guard, pending
        self.partitions = partitions
        self.max_body_size, self.ignores_keys, self.is_direct = max_body_size, ignores_keys, is_direct
        self.has_interceptors, self.serializers, self.transactions = has_interceptors, serializers, transactions
        self.destinations = {}
        self.burst = BURST_UNBOUNDED  # last: without it, nothing is appended

    def lead(self, str topic not None, Destination destination not None):
        """Lead the next records of a topic, outside of transactions."""
        self.destinations[topic] = destination
        self.last_topic = None

    def known(self, str topic not None):
        """Return where records of a topic are led; None if that is not known."""
        return self.destinations.get(topic)

    def try_send(self, topic, value, key, headers, partition, timestamp_ms, on_delivery):
        """Send a record, as `Producer.send`, if no Python code has to see it and there is nothing to wait for.

        Returns:
            Its future; None if it was not sent.
        """
        return self._try_send(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    cdef FutureRecordMetadata _try_send(self, topic, value, key, headers, partition, timestamp_ms, on_delivery):
        if not self.is_direct:
            return None
        if value is not None and not PyBytes_CheckExact(value):
            value = _encoded(value)
            if not PyBytes_CheckExact(value):
                return None
        if key is not None and not PyBytes_CheckExact(key):
            key = _encoded(key)
            if not PyBytes_CheckExact(key):
                return None
        if not _are_plain(headers):
            return None
        try:
            return self._append(
                None, topic, <bytes>value, <bytes>key, None, headers, partition, timestamp_ms, on_delivery
            )
        except BaseException as error:
            self.refuse(error, topic, partition, on_delivery, headers)
            raise

    cdef FutureRecordMetadata _serialize_and_send(
        self, topic, value, key, headers, partition, timestamp_ms, on_delivery
    ):
        """Send a record, as `Producer.send`, in the open transaction; None if nothing was done: Python code has to."""
        cdef dict destinations = None
        cdef FutureRecordMetadata future
        if not self._can_serialize(topic, headers, on_delivery):
            return None
        transaction = None
        if self.transactions is not None:
            transaction = self.transactions.current
            destinations = transaction.destinations
        try:
            key = self.serializers.key.serialize(topic, key)
            value = self.serializers.value.serialize(topic, value)
            future = self._append(
                destinations, topic, <bytes>value, <bytes>key, None, headers, partition, timestamp_ms, on_delivery
            )
            if future is None:
                future = self.send_serialized(
                    topic, value, key, headers, partition, timestamp_ms, on_delivery, transaction
                )
            return future
        except BaseException as error:
            self.refuse(error, topic, partition, on_delivery, headers, transaction)
            raise

    cdef bint _can_serialize(self, topic, headers, on_delivery) noexcept:
        """Return whether a record needs no Python code but its serializers."""
        return not (
            self.burst == 0  # also without a constructor
            or self.has_interceptors
            or self.guard.closed
            or not PyUnicode_CheckExact(topic)
            or not _are_plain(headers)
            or (on_delivery is not None and not PyCallable_Check(on_delivery))
        )

    def append(
        self,
        topic,
        bytes value,
        bytes key,
        bytes body=None,
        partition=None,
        timestamp_ms=None,
        on_delivery=None,
        dict destinations=None,
    ):
        """Append a serialized record to an open batch, or as the first of a new one.

        Args:
            topic: its name.
            value: the value.
            key: the key.
            body: from the format's ``encode_body``, for a record with headers.
            partition: as of `Producer.send`, as the following ones.
            timestamp_ms: see there.
            on_delivery: see there.
            destinations: of the record's transaction; by default, those outside of transactions.

        Returns:
            Its future; None if it was not appended.

        Raises:
            SlabDamagedError: the deque is damaged.
        """
        return self._append(destinations, topic, value, key, body, None, partition, timestamp_ms, on_delivery)

    cdef FutureRecordMetadata _append(
        self,
        dict destinations,
        topic,
        bytes value,
        bytes key,
        bytes body,
        headers,
        partition,
        timestamp_ms,
        on_delivery,
    ):
        cdef Appender appender = self.appender
        cdef Contributions contributions
        cdef Segment segment
        cdef Destination destination
        cdef StickyPartition sticky = None
        cdef FutureRecordMetadata future
        cdef bytes encoded = None
        cdef uint64_t number, ticket
        cdef int64_t timestamp
        cdef Queue queue
        cdef Record record
        cdef Damage damage
        cdef int status
        if self.burst == 0 or appender is None or not PyUnicode_CheckExact(topic):
            return None
        if on_delivery is not None and not PyCallable_Check(on_delivery):
            return None
        if headers is not None and len(headers):
            encoded = _v2_headers(headers) if appender.magic == V2 else None
            if encoded is None:
                body = self.encode_body(key, value, headers)
        segment = appender.segment
        if segment is None or ticket_of(segment) == 0:
            return None  # closed, or a forked child
        contributions = appender.contributions
        if contributions.callbacks.is_due or not _may_contribute(&appender.producer, contributions.entry):
            self.pending.poll()  # runs callbacks, which can close the producer
        if not appender.takes_calls(self.guard):
            return None
        ticket = ticket_of(segment)
        if destinations is not None:
            destination = <Destination>destinations.get(topic)
        elif topic is self.last_topic:
            destination = self.last_destination
        else:
            destination = <Destination>self.destinations.get(topic)
            self.last_topic, self.last_destination = topic, destination
        if destination is None:
            return None
        if load_relaxed(&appender.producer.deques.superblock.generation) != destination.generation:
            return None
        if timestamp_ms is None:
            timestamp = _now_ms()
        else:
            timestamp = _as_number(timestamp_ms)
            if timestamp < 0:
                return None
        if partition is not None:
            number = <uint64_t>_as_number(partition)
        elif key is None or self.ignores_keys:
            sticky = destination.sticky
            if sticky is None:
                return None
            number = <uint64_t>sticky.partition
        elif destination.count:
            number = _partition_for_key(key, destination.count)
        else:
            return None
        if number >= destination.count or destination.entries[number] == UNKNOWN:
            return None

        memset(&record, 0, sizeof(Record))
        record.magic, record.timestamp = appender.magic, timestamp
        record.key_size = record.value_size = -1
        if key is not None:
            record.key, record.key_size = <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
            record.sizes = (<uint64_t>record.key_size + 1) << 32
        if value is not None:
            record.value, record.value_size = <const uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
            record.sizes |= <uint64_t>record.value_size + 1
        if encoded is not None:
            record.headers = <const uint8_t *>PyBytes_AS_STRING(encoded)
            record.headers_size = <uint64_t>PyBytes_GET_SIZE(encoded)
        if body is None:
            record.body_size = body_size_of(&record)
        else:
            record.body, record.body_size = <const uint8_t *>PyBytes_AS_STRING(body), <uint64_t>PyBytes_GET_SIZE(body)
        if record.body_size > self.max_body_size:
            return None
        damage.kind = SOUND
        destination.set_queue(&queue, &appender.producer.deques, number)
        future = FutureRecordMetadata.__new__(FutureRecordMetadata)

        status = append_growing(
            &appender.producer,
            &appender.pool.pool,
            &queue,
            contributions.table,
            contributions.entry,
            ticket,
            &record,
            &damage,
        )
        if status == LOCK_TAKEN:
            appender._fill_in(future, &record, None)
        elif status == APPEND_NO_ROOM:
            status = self._begin_batch(segment, destination, sticky, future, &queue, &record, &damage)
        if status != LOCK_TAKEN:
            check_deque(appender.damaged, queue.entry, &damage)
            return None
        if self.burst > 0:
            self.burst -= 1
        if on_delivery is not None:
            contributions.callbacks._add(_batch_of(&record), on_delivery, future)
        if sticky is not None and sticky._note(<int64_t>record.added):
            self.appended(sticky, None)
        if record.is_news:
            if load_relaxed(&appender.producer.deques.superblock.sender_asleep):
                self.appended(None, bool(record.is_full or record.is_due_earlier))
        return future

    cdef int _begin_batch(
        self,
        Segment segment,
        Destination destination,
        StickyPartition sticky,
        FutureRecordMetadata future,
        Queue *queue,
        Record *record,
        Damage *damage,
    ) except -1:
        """Append a record as the first of a new batch, if that needs no wait; return a status."""
        cdef Appender appender = self.appender
        cdef Contributions contributions = appender.contributions
        cdef ProduceRequestResult result
        cdef uint64_t number
        cdef int status
        if sticky is not None and sticky.produced >= sticky.sticky_bytes:
            # The batch is another partition's, which can have an open one: `StickyPartitioner.reroute`.
            sticky.switch()
            if record.is_news and load_relaxed(&appender.producer.deques.superblock.sender_asleep):
                self.appended(None, True)  # no record comes behind the full batch that shows it to the sender
            number = <uint64_t>sticky.partition
            if number >= destination.count or destination.entries[number] == UNKNOWN:
                return APPEND_NO_ROOM
            if not appender.takes_calls(self.guard):
                return APPEND_NO_ROOM
            destination.set_queue(queue, &appender.producer.deques, number)
            status = append_growing(
                &appender.producer,
                &appender.pool.pool,
                queue,
                contributions.table,
                contributions.entry,
                ticket_of(segment),
                record,
                damage,
            )
            if status == LOCK_TAKEN:
                appender._fill_in(future, record, None)
            if status != APPEND_NO_ROOM:
                return status
        if not self.has_sender():
            return APPEND_NO_ROOM
        opened = (<list>self.partitions.by_entry)[<Py_ssize_t>queue.entry]
        result = appender.begin_batch(segment, self.guard, queue, opened, record, damage)
        if result is not None:
            appender._fill_in(future, record, result)
        if appender.unused:
            self.free_unused()
        return APPEND_NO_ROOM if result is None else LOCK_TAKEN


cdef bint _are_plain(headers) noexcept:
    """Return whether headers can be read more than once, by no Python code."""
    return headers is None or type(headers) is list or type(headers) is tuple or type(headers) is dict


cdef object _encoded(field):
    """Return text in UTF-8; the field itself if it is none, or if that is not possible: Python code says why."""
    if not PyUnicode_CheckExact(field):
        return field
    try:
        return PyUnicode_AsUTF8String(field)
    except UnicodeEncodeError:
        return field


cdef int64_t _as_number(value):
    """Return an int that has 63 bits at most; -1 for anything else."""
    cdef int overflow = 0
    cdef long long number
    if not PyLong_CheckExact(value):
        return -1
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    return -1 if overflow or number < 0 else number


cdef int64_t _now_ms() noexcept nogil:
    """Return the time of day, in milliseconds since the epoch."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + <int64_t>now.tv_nsec // 1_000_000


cdef class Producer:
    """The part of `shmaccum.Producer` that sends single records.

    Attributes:
        _records: the path of its records; None before it is open.
    """

    cdef public RecordPath _records

    def send(
        self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None
    ):
        """Send a record. On return it is accepted: it will be acknowledged, or its error reported.

        Args:
            topic: the topic; created on first use where the cluster does that.
            value: what ``value.serializer`` takes; without one, bytes or text, or None (a tombstone).
            key: what ``key.serializer`` takes; without one, bytes or text, or None.
            headers: pairs of name and value, or a dict; a value is bytes, text or None.
            partition: its number; by default from the key's hash or, without a key, the sticky partition.
            timestamp_ms: milliseconds since the epoch; by default, now.
            on_delivery: called with (error, None) or (None, metadata) when the record is complete. It runs in this
                process, in the thread that next sends, polls, flushes or waits.

        Returns:
            Its future, with the methods of kafka-python's.

        Raises:
            KafkaTimeoutError: there was no metadata of the topic within ``max.block.ms``.
            BufferExhaustedError: no memory became free within ``max.block.ms``.
            LockTimeoutError: a stopped process held a lock for ``max.block.ms``; names the process.
            SlabDamagedError: the shared memory is damaged.
            RecordTooLargeError: the record is larger than ``max.request.size``, or than the slab.
            InvalidTopicError, UnknownTopicOrPartitionError, SerializationError, InvalidTimestampError: an argument.
            IllegalArgumentError: the partition is negative, or ``on_delivery`` cannot be called.
            IllegalStateError: an interceptor's ``on_send`` returned None.
            ProducerClosedError: the producer has been closed.
            SenderError: there was no sender, and none could be started.

        With a ``transactional.id`` it also raises IllegalStateError outside of a transaction, and the error of one that
        has failed. The record belongs to the transaction that is open when `send` is called. If another thread ends
        that one while the call waits, it raises IllegalStateError.

        Like Kafka's producer, it calls ``on_delivery`` before it raises an error that is an ``ApiException`` there
        (`KafkaError.is_api`): both are about the same record. Interceptors see every error.

        After an error the record is not accepted, and will not be sent. The exception is an interrupt, such as
        KeyboardInterrupt from a signal handler: it can arrive after the record is accepted and before `send` returns.
        """
        cdef RecordPath path = self._records
        if path is None:
            raise AttributeError("the producer is not open: its __init__ was not called, or raised")
        future = path._try_send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if future is None:
            future = path._serialize_and_send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if future is not None:
            return future
        return path.send(topic, value, key, headers, partition, timestamp_ms, on_delivery)


cdef class AsyncProducer:
    """The part of `shmaccum.AsyncProducer` that sends single records.

    Attributes:
        _records: the path of its records; None before it is started.
    """

    cdef public RecordPath _records

    async def send(
        self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None
    ):
        """Send a record. On return it is accepted: it will be acknowledged, or its error reported.

        Args:
            topic: the topic; created on first use where the cluster does that.
            value: what ``value.serializer`` takes; without one, bytes or text, or None (a tombstone).
            key: what ``key.serializer`` takes; without one, bytes or text, or None.
            headers: pairs of name and value, or a dict; a value is bytes, text or None.
            partition: its number; by default from the key's hash or, without a key, the sticky partition.
            timestamp_ms: milliseconds since the epoch; by default, now.
            on_delivery: called with (error, None) or (None, metadata) when the record is complete, in the event loop.

        Returns:
            Its future: ``await`` it for the acknowledgement.

        Raises:
            KafkaError: as `Producer.send`. After an error, or a cancellation, the record is not accepted.
        """
        cdef RecordPath path = self._records
        if path is None:
            path = self._producer._records  # raises that it is not started
        if on_delivery is not None and PyCallable_Check(on_delivery):
            on_delivery = self._in_loop(on_delivery)
        future = path._try_send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if future is None:
            if path._can_serialize(topic, headers, on_delivery):
                try:
                    key = path.serializers.key.serialize(topic, key)
                    value = path.serializers.value.serialize(topic, value)
                    future = path._append(
                        None, topic, <bytes>value, <bytes>key, None, headers, partition, timestamp_ms, on_delivery
                    )
                    if future is None:
                        future = await self._send(
                            True, topic, value, key, headers, partition, timestamp_ms, on_delivery
                        )
                except BaseException as error:
                    path.refuse(error, topic, partition, on_delivery, headers)
                    raise
            else:
                future = await self._send(False, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if on_delivery is not None or path.has_interceptors:
            self._run_callbacks()
        return future


cdef class PollingCalls:
    """What produces and polls for a `shmaccum.compat.confluent.Producer`.

    Attributes:
        reports: of its messages.
        next_look: monotonic seconds; from then on, `PollingProducer.poll` looks for more than reports.
    """

    cdef readonly Reports reports
    cdef public double next_look
    cdef RecordPath path
    cdef dict parked
    cdef object partitioner
    cdef bint is_sticky
    """Whether messages without a key go to any partition."""
    cdef object callback
    cdef object header_list
    cdef Py_ssize_t max_messages

    def _open_path(
        self,
        Reports reports not None,
        RecordPath path not None,
        dict parked not None,
        partitioner not None,
        callback,
        header_list not None,
        Py_ssize_t max_messages,
    ):
        """Take calls.

        Args:
            reports: of its messages.
            path: appends its records.
            parked: the messages that wait for their topics: while there are some, Python code takes all calls.
            partitioner: returns the partition for a key and a number of partitions; None where it does not matter.
            callback: of messages that have none.
            header_list: makes a list of pairs of what a message's headers are given as.
            max_messages: most that are not reported.
        """
        self.reports, self.path, self.parked = reports, path, parked
        self.partitioner, self.callback = partitioner, callback
        self.header_list, self.max_messages = header_list, max_messages
        self.is_sticky = partitioner(None, 1) is None

    def _close_path(self):
        """Leave all calls to Python code."""
        self.path = None

    cdef bint _try_produce(self, topic, value, key, partition, callback, timestamp, headers) except -1:
        """Send a message that no Python code has to see, and that waits for nothing; return whether it is sent."""
        cdef RecordPath path = self.path
        cdef Destination destination
        cdef Message message
        if path is None or self.parked or self.reports.waiting >= self.max_messages or type(topic) is not str:
            return False
        if headers is not None:
            headers = self.header_list(headers)
        if isinstance(value, str):
            value = PyUnicode_AsUTF8String(value)
        if isinstance(key, str):
            key = PyUnicode_AsUTF8String(key)
        number = None
        if partition is not None and partition != ANY_PARTITION:
            number = partition
        elif key is not None or not self.is_sticky:
            destination = <Destination>path.destinations.get(topic)
            if destination is None:
                return False
            number = self.partitioner(key, destination.count)  # of another generation: it is not sent
        message = Message.__new__(Message)
        message._begin(self.reports, topic, key, value, headers, self.callback if callback is None else callback)
        try:
            future = path._try_send(topic, value, key, headers, number, timestamp or None, message)
        except BaseException as error:
            self._refused(message, partition, error)
            return True
        if future is None:
            message.drop()
            return False
        message.future = future
        return True

    cdef object _poll_now(self, timeout):
        """Call the callbacks of reported messages; leave the call to Python code if there is more to do."""
        cdef RecordPath path = self.path
        if (
            timeout == 0  # as programs poll after every message
            and path is not None
            and not self.parked
            and path.appender.segment is not None
            and not path.appender.contributions._has_news()
            and _monotonic_s() < self.next_look
        ):
            return self.reports._serve() if self.reports.due else 0
        return self._poll(timeout)


cdef class PollingProducer:
    """The part of `shmaccum.compat.confluent.Producer` that produces and polls, by its calls: ``_shm``."""

    cdef public PollingCalls _shm

    cdef PollingCalls _calls(self):
        if self._shm is None:
            raise RuntimeError("Producer has been closed")
        return self._shm

    def produce(
        self, topic, value=None, key=None, partition=ANY_PARTITION, callback=None, on_delivery=None, timestamp=0,
        headers=None
    ):
        """Send a message; its callback runs in a later `poll` or `flush`.

        It waits for the metadata of a topic that the slab does not know yet, 1 s at most. Then the message waits in
        this process: a later `produce`, `poll` or `flush` sends it, or reports it after ``message.timeout.ms``.

        Raises:
            BufferError: too many messages are unreported, or the slab is full: poll, and try again.
            KafkaException: the message is too large, its partition does not exist, or there is no transaction.
            TypeError: an argument has the wrong type.
            RuntimeError: the producer is closed.
        """
        cdef PollingCalls calls = self._calls()
        if callback is None:
            callback = on_delivery
        if not calls._try_produce(topic, value, key, partition, callback, timestamp, headers):
            calls.produce(topic, value, key, partition, callback, timestamp, headers)

    def poll(self, timeout=-1):
        """Call the callbacks of reported messages; wait for one up to ``timeout`` s, if it is not negative.

        Returns:
            How many messages were reported.
        """
        return self._calls()._poll_now(timeout)
