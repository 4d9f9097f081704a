"""The batches of Produce requests: sealed in place, encoded, answered.

The sender owns a drained batch's slot and takes no lock. It writes the header of format 2 in front of the records, with
their checksum. If it dies here, the next sender seals the batch again. All else is memory of the process.

What is written here is the common case, and returns None for any other, which Python code serves: batches that are
split, to be compressed, of an old format or damaged; answers that hold more than offsets.
"""

from types import MappingProxyType

cdef enum:
    V2_CRC_COVERS = 21  # from here on
    V2_CRC_AT = 17
    LOG_OVERHEAD = 12  # bytes before those that a batch's length counts
    TRANSACTIONAL = 0x10  # among the attributes
    NO_PARTITION_LEADER_EPOCH = -1

    CORRELATION_ID_SIZE = 4
    PARTITION_ANSWER = 33  # number 4, error 2, base offset 8, append time 8, log start offset 8, and what follows
    ANSWER_END = 5  # throttle time 4, tags
    LENGTH_BITS = 28  # shift of the last byte of a length

cdef object _NO_RECORDS = MappingProxyType({})
cdef int64_t NO_TIME_MS = 1LL << 47  # an append time from here on is refused: a completion has no room for it


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class ProduceBatch:
    """One sealed batch.

    Attributes:
        topic_partition: where it goes.
        payload: the batch's bytes in Kafka's format, writable, as one view or consecutive ones. They are in the slab,
            or in private memory if the sender compressed them. A transport writes nothing but the base offset, in the
            first view, and keeps no reference to a view after its answer.
        size: bytes in all views.
        record_count: records.
        magic: 2, or 1 for the old message sets.
        producer_id, producer_epoch, base_sequence: identity of the batch; -1 without idempotence.
        max_timestamp: largest timestamp in it, milliseconds since the epoch.
        slot: the sender's handle; comes back with the answer.
        transactional_id: of its transaction, all of whose batches have the same; None outside of transactions.
        transaction_version: version of the transaction protocol, 1 or 2; 0 outside of transactions.
        transaction: tells transactions of one id, producer id and epoch apart.
    """

    cdef readonly object topic_partition
    cdef readonly tuple payload
    cdef readonly uint64_t size
    cdef readonly uint64_t record_count
    cdef readonly int magic
    cdef readonly int64_t producer_id
    cdef readonly int64_t producer_epoch
    cdef readonly int64_t base_sequence
    cdef readonly int64_t max_timestamp
    cdef readonly uint64_t slot
    cdef readonly object transactional_id
    cdef readonly int transaction_version
    cdef readonly uint64_t transaction

    def __init__(
        self,
        topic_partition,
        tuple payload not None,
        uint64_t record_count,
        int magic,
        int64_t producer_id,
        int64_t producer_epoch,
        int64_t base_sequence,
        int64_t max_timestamp,
        uint64_t slot,
        transactional_id=None,
        int transaction_version=0,
        uint64_t transaction=0,
    ):
        self.topic_partition, self.payload, self.size = topic_partition, payload, 0
        for view in payload:
            self.size += <uint64_t>len(view)
        self.record_count, self.magic, self.max_timestamp, self.slot = record_count, magic, max_timestamp, slot
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.transactional_id, self.transaction_version = transactional_id, transaction_version
        self.transaction = transaction

    def release(self):
        """Release the payload's views."""
        for view in self.payload:
            view.release()


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class ProduceResponse:
    """The answer to one `ProduceBatch`.

    Attributes:
        batch: the batch.
        base_offset: the first record's offset, -1 if unknown.
        log_append_time_ms: -1 unless the log stamps records itself.
        error: None if the batch is stored.
        message: describes the error, with partition and broker.
        invalid_records: if the answer names invalid records (KIP-467), number within the batch -> reason.
        words: the broker's or the network's own text. It names no partition, so that all batches which one incident
            hits have the same.
    """

    cdef readonly ProduceBatch batch
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly object error
    cdef readonly str message
    cdef readonly object invalid_records
    cdef readonly str words

    def __init__(
        self,
        ProduceBatch batch not None,
        int64_t base_offset=-1,
        int64_t log_append_time_ms=-1,
        error=None,
        str message not None="",
        invalid_records=None,
        str words not None="",
    ):
        self.batch, self.base_offset, self.log_append_time_ms = batch, base_offset, log_append_time_ms
        self.error, self.message, self.words = error, message, words
        self.invalid_records = _NO_RECORDS if invalid_records is None else invalid_records


# --- sealing --------------------------------------------------------------------------------------


@cython.final
cdef class InPlaceSealer:
    """Seals drained batches of format 2 in their slots.

    Args:
        segment: the slab.
        partitions: has the deques, ``by_entry``: each with its ``topic_partition`` and ``lane``.
        identity: ``identity(lane)`` returns the transactional id of a lane, its protocol's version, and the number of
            its transaction.
    """

    cdef Segment segment
    cdef object partitions
    cdef object identity
    cdef object memory

    def __cinit__(self, Segment segment not None, partitions not None, identity not None):
        self.segment, self.partitions, self.identity = segment, partitions, identity
        self.memory = segment.writable()

    def seal(self, RecordBatch batch not None):
        """Return a drained batch sealed; None if Python code has to see it."""
        return self._seal(batch)

    cdef ProduceBatch _seal(self, RecordBatch batch):
        cdef SlotHeader *header = batch.header
        cdef uint64_t slot_size = self.segment.geometry.sizes.slot_size
        cdef uint64_t begin = self.segment.geometry.regions.slots + batch.slot * slot_size
        cdef uint64_t commit, size, number, count
        cdef int64_t producer_id = -1, epoch = -1, sequence = -1
        cdef ProduceBatch sealed
        cdef uint64_t attributes = 0, lane
        cdef list deques = self.partitions.by_entry
        cdef tuple views
        cdef uint8_t *at
        cdef uint32_t crc
        cdef const uint8_t[::1] following
        if load_relaxed(&header.part) or slot_size < V2_HEADER_SIZE or not batch._is_sound(V2_HEADER_SIZE):
            return None
        if load_relaxed(&header.linger) & COMPRESSION_MASK or batch.partition >= <uint64_t>len(deques):
            return None
        deque = deques[<Py_ssize_t>batch.partition]
        size = committed_size(header)
        if size <= slot_size:
            views = (self.memory[begin:begin + size],)
        else:
            views = batch.views()
            if views is None:
                return None
        commit, number = load_acquire(&header.commit), load_relaxed(&header.sequence)
        count = commit >> 1 & COMMIT_COUNT_MASK
        if number:
            producer_id = <int64_t>load_relaxed(&header.producer_id) - 1
            epoch, sequence = <int64_t>(number >> EPOCH_SHIFT) - 1, <int64_t>(number & SEQUENCE_MASK)
        sealed = ProduceBatch.__new__(ProduceBatch)
        sealed.topic_partition, sealed.payload, sealed.size = deque.topic_partition, views, size
        sealed.record_count, sealed.magic, sealed.slot = count, V2, batch.slot
        sealed.producer_id, sealed.producer_epoch, sealed.base_sequence = producer_id, epoch, sequence
        sealed.max_timestamp = <int64_t>load_relaxed(&header.max_timestamp[commit & 1])
        lane = deque.lane
        if lane:
            attributes = TRANSACTIONAL
            sealed.transactional_id, sealed.transaction_version, sealed.transaction = self.identity(lane - 1)

        at = <uint8_t *>self.segment.memory + begin
        _put_big_endian(at, 0, 8)
        _put_big_endian(at + 8, size - LOG_OVERHEAD, 4)
        _put_big_endian(at + 12, <uint64_t>NO_PARTITION_LEADER_EPOCH, 4)
        at[16] = V2
        at = _put_big_endian(at + V2_CRC_COVERS, attributes, 2)
        at = _put_big_endian(at, count - 1, 4)
        at = _put_big_endian(at, load_relaxed(&header.base_timestamp), 8)
        at = _put_big_endian(at, <uint64_t>sealed.max_timestamp, 8)
        at = _put_big_endian(at, <uint64_t>producer_id, 8)
        at = _put_big_endian(at, <uint64_t>epoch, 2)
        at = _put_big_endian(at, <uint64_t>sequence, 4)
        _put_big_endian(at, count, 4)
        at = <uint8_t *>self.segment.memory + begin
        crc = crc32c(0, at + V2_CRC_COVERS, <uint64_t>len(views[0]) - V2_CRC_COVERS)
        for following in views[1:]:
            crc = crc32c(crc, &following[0], <uint64_t>following.shape[0])
        if self.segment.geometry.sizes.keeps_checksums and crc != crc32c_joined(
            crc32c(0, at + V2_CRC_COVERS, V2_HEADER_SIZE - V2_CRC_COVERS),
            checksum_kept(header),
            size - V2_HEADER_SIZE,
        ):
            return None
        _put_big_endian(at + V2_CRC_AT, <uint64_t>crc, 4)
        return sealed

    def seal_all(self, list drained not None, list in_flight not None, Completer counts not None):
        """Seal batches, note them as in flight, and count them.

        Args:
            drained: the batches.
            in_flight: by slot, the batches without an answer.
            counts: counts them.

        Returns:
            (those that are sealed, the batches that Python code has to see).
        """
        cdef list sealed = [], rest = []
        cdef RecordBatch batch
        cdef ProduceBatch produced
        for batch in drained:
            produced = self._seal(batch)
            # Without a producer id, a batch of a closed lane would be in no transaction, and visible at once.
            if produced is None or counts.sequences.is_closed(batch):
                rest.append(batch)
            else:
                in_flight[batch.slot] = batch
                counts.count_drained(batch, produced.size, produced.record_count)
                sealed.append(produced)
        return sealed, rest


# --- requests and answers -------------------------------------------------------------------------


cdef uint8_t *_put_length(uint8_t *at, uint64_t number) noexcept nogil:
    """Write a length of a flexible version, an unsigned varint of length + 1; return the place behind it."""
    number += 1
    while number > 0x7F:
        at[0] = <uint8_t>(number | 0x80)
        at += 1
        number >>= 7
    at[0] = <uint8_t>number
    return at + 1


def add_buffers(list buffers not None, bytes head not None, dict batches not None, bint is_flexible):
    """Add the batches of a topic to the buffers of a request, each with its partition and size before it.

    Args:
        buffers: gets the heads and the payloads.
        head: what stands before the first batch.
        batches: by partition.
        is_flexible: whether the version has lengths as varints, and tags.

    Returns:
        (what stands behind the last batch, bytes added).
    """
    cdef uint8_t between[16]
    cdef uint8_t *at
    cdef uint64_t size = 0
    cdef ProduceBatch batch
    for number, batch in batches.items():
        at = _put_big_endian(between, <uint64_t>(<int64_t>number), 4)
        at = _put_length(at, batch.size) if is_flexible else _put_big_endian(at, batch.size, 4)
        head += (<char *>between)[:at - between]
        buffers.append(head)
        buffers.extend(batch.payload)
        size += <uint64_t>len(head) + batch.size
        head = b"\0" if is_flexible else b""
    return head, size


cdef uint64_t _big_endian(const uint8_t *at, int size) noexcept nogil:
    cdef uint64_t number = 0
    while size:
        number = number << 8 | at[0]
        at += 1
        size -= 1
    return number


cdef int64_t _length(const uint8_t **at, const uint8_t *end) noexcept nogil:
    """Read a length of a flexible version; -1 for null, -2 if there is none. Advance behind it."""
    cdef uint64_t number = 0
    cdef uint8_t byte
    cdef int shift = 0
    while shift <= LENGTH_BITS and at[0] < end:
        byte = at[0][0]
        at[0] += 1
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>number - 1
        shift += 7
    return -2


def read_stored(bytes frame not None, dict batches not None):
    """Read an answer of a flexible version in which all batches are stored and nothing else is said.

    Args:
        frame: the answer, from the correlation id on.
        batches: of the request: topic -> partition -> its only batch.

    Returns:
        The batches' responses; None if the frame holds more, or is not of these batches.
    """
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(frame)
    cdef const uint8_t *end = at + PyBytes_GET_SIZE(frame)
    cdef dict awaited = batches.copy(), of_topic
    cdef list responses = []
    cdef int64_t topics, partitions, size
    cdef ProduceBatch batch
    cdef ProduceResponse response
    if end - at <= CORRELATION_ID_SIZE or at[CORRELATION_ID_SIZE]:  # tags of the header
        return None
    at += CORRELATION_ID_SIZE + 1
    topics = _length(&at, end)
    while topics > 0:
        topics -= 1
        size = _length(&at, end)
        if size < 0 or size > end - at:
            return None
        try:
            of_topic = awaited.pop((<const char *>at)[:size].decode("utf-8"), None)
        except UnicodeDecodeError:
            return None
        at += size
        partitions = _length(&at, end)
        if of_topic is None or partitions != len(of_topic) or partitions * PARTITION_ANSWER >= end - at:
            return None
        of_topic = of_topic.copy()
        while partitions:
            partitions -= 1
            batch = of_topic.pop(<int32_t>_big_endian(at, 4), None)
            if batch is None or at[4] or at[5] or at[30] != 1 or at[31] or at[32]:
                return None  # an error; errors of records; a message; tags
            response = ProduceResponse.__new__(ProduceResponse)
            response.batch, response.message, response.words = batch, "", ""
            response.invalid_records = _NO_RECORDS
            response.base_offset = <int64_t>_big_endian(at + 6, 8)
            response.log_append_time_ms = <int64_t>_big_endian(at + 14, 8)
            if response.base_offset < -1 or not -1 <= response.log_append_time_ms < NO_TIME_MS:
                return None
            responses.append(response)
            at += PARTITION_ANSWER
        if at[0]:  # tags of the topic
            return None
        at += 1
    if topics or awaited or end - at != ANSWER_END or at[ANSWER_END - 1]:
        return None
    return responses
