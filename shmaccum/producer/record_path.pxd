cimport cython
from shmaccum.accumulator.append.futures cimport FutureRecordMetadata
from shmaccum.accumulator.append.record_accumulator cimport RecordAccumulator
from shmaccum.accumulator.state.partition_map cimport PartitionMap, TopicEntry
from shmaccum.producer.partitioner cimport StickyPartitioner
from shmaccum.record.v2.fastrecords cimport FastRecords
from shmaccum.record.murmur2 cimport partition_for_key
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _SENDER_ASLEEP

cdef class RecordSending:
    cdef dict __dict__
    cdef object __weakref__
    cdef public bint _closed
    cdef readonly bint _has_interceptors
    cdef SlabMemory _memory
    cdef PartitionMap _map
    cdef readonly RecordAccumulator _accumulator
    cdef FastRecords _fast
    cdef unsigned long long _rung
    cdef long long _linger_ms
    cdef readonly dict _sticky
    cdef readonly bint _ignore_keys
    cdef readonly bint _has_key_serializer
    cdef readonly bint _has_value_serializer
    cdef object _key_serializer
    cdef object _value_serializer
    cdef readonly object _max_block_ms
    cdef object _encode_body
    cdef readonly Py_ssize_t _max_body_size

    @cython.final
    @cython.locals(
        entry=TopicEntry, queues=tuple, fast=FastRecords, body=bytes, sticky=StickyPartitioner, number=Py_ssize_t,
        timestamp="long long", future=FutureRecordMetadata, batch_is_full=bint, new_batch_created=bint,
        appended_bytes=Py_ssize_t, sizes="unsigned long long",
        asleep="unsigned long long",
    )
    cdef FutureRecordMetadata _append(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
