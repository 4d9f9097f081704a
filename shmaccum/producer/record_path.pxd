cimport cython
from shmaccum.accumulator.append.record_accumulator cimport RecordAccumulator
from shmaccum.accumulator.state.partition_map cimport PartitionMap, TopicEntry
from shmaccum.accumulator.state.partition_queue cimport PartitionQueue
from shmaccum.producer.call_guard cimport CallGuard
from shmaccum.producer.partitioner cimport StickyPartitioner
from shmaccum.record.v2.fastrecords cimport FastRecords
from shmaccum.record.murmur2 cimport partition_for_key
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _SENDER_ASLEEP

@cython.final
cdef class RecordPath:
    cdef CallGuard _guard
    cdef RecordAccumulator _accumulator
    cdef object _interceptors
    cdef bint _has_interceptors
    cdef object _slab
    cdef SlabMemory _memory
    cdef object _destinations
    cdef PartitionMap _map
    cdef dict _sticky
    cdef bint _ignore_keys
    cdef object _max_block_ms
    cdef Py_ssize_t _max_body_size
    cdef unsigned long long _rung
    cdef long long _linger_ms
    cdef bint _has_key_serializer
    cdef bint _has_value_serializer
    cdef object _key_serializer
    cdef object _value_serializer
    cdef FastRecords _fast
    cdef object _encode_body
    cdef object _transactions
    cdef object _refusals
    cdef public bint counts_timeouts
    cdef public bint never_waits
    cdef public Py_ssize_t burst

cpdef object send_now(
    RecordPath path, topic, value, key, headers, partition, timestamp_ms, on_delivery
)

cdef object _send(
    RecordPath path, transaction, topic, value, key, headers, partition, timestamp_ms, on_delivery
)

@cython.locals(
    entry=TopicEntry, queues=tuple, queue=PartitionQueue, fast=FastRecords, body=bytes, sticky=StickyPartitioner, number=Py_ssize_t,
    timestamp="long long", batch_is_full=bint, new_batch_created=bint,
    appended_bytes=Py_ssize_t, sizes="unsigned long long", asleep="unsigned long long",
)
cdef object _append(
    RecordPath path, transaction, topic, value, key, headers, partition, timestamp_ms, callback
)
