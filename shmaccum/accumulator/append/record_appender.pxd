cimport cython
from shmaccum.accumulator.append.pending_batches cimport PendingBatches
from shmaccum.accumulator.state.batch_header cimport begin
from shmaccum.accumulator.append.fastfutures cimport new_future
from shmaccum.accumulator.append.futures cimport FutureRecordMetadata, ProduceRequestResult
from shmaccum.accumulator.state.partition_queue cimport PartitionQueue
from shmaccum.record.v2.fastrecords cimport FastRecords
from shmaccum.shm.histograms cimport count as count_in_histogram
from shmaccum.shm.locks cimport SlabLock
from shmaccum.shm.memory cimport SlabMemory, word

cdef bint _COMPILED
cdef Py_ssize_t _SLOTS
cdef Py_ssize_t _COMMIT
cdef int _SIZE_SHIFT
cdef Py_ssize_t _COUNT_MASK
cdef Py_ssize_t _BASE_TIMESTAMP
cdef Py_ssize_t _MAX_TIMESTAMP
cdef Py_ssize_t _MAX_RECORD
cdef Py_ssize_t _LINGER
cdef Py_ssize_t _LIMITS
cdef int _LIMITS_SHIFT
cdef unsigned long long _LIMITS_BITS
cdef int _LINGER_SHIFT
cdef unsigned long long _COMPRESSION_BITS
cdef int _OPEN
cdef int _CLOSED
cdef Py_ssize_t _RECORDS
cdef Py_ssize_t _BYTES
cdef Py_ssize_t _BATCHES
cdef Py_ssize_t _PRECOMPRESSED

@cython.final
@cython.final
cdef class RecordAppender:
    cdef object __weakref__
    cdef readonly object slab
    cdef readonly object format
    cdef readonly object compressor
    cdef readonly PendingBatches pending
    cdef readonly Py_ssize_t slot_size
    cdef readonly Py_ssize_t header_size
    cdef readonly FastRecords fast
    cdef object _encode_record
    cdef readonly object _buffer
    cdef SlabMemory _memory
    cdef Py_ssize_t _headers_at
    cdef Py_ssize_t _header_words
    cdef unsigned long long _slot_count
    cdef Py_ssize_t _slots_at
    cdef Py_ssize_t _contributor_words
    cdef bint _compresses
    cdef unsigned long long _linger_ms
    cdef readonly unsigned long long linger
    cdef unsigned long long _timeout_ms
    cdef unsigned long long _retries
    cdef readonly unsigned long long limits

    @cython.locals(
        memory=SlabMemory, opened="unsigned long long", slot=Py_ssize_t, header=Py_ssize_t, commit="unsigned long long",
        size=Py_ssize_t, count=Py_ssize_t, base_timestamp="unsigned long long", record=bytes, start=Py_ssize_t, added=Py_ssize_t,
        end=Py_ssize_t,
        future=FutureRecordMetadata, is_full=bint, is_due_earlier=bint,
    )
    cpdef tuple try_append(
        self, PartitionQueue queue, long long timestamp, bytes body, callback, unsigned long long sizes
    )

    @cython.locals(
        memory=SlabMemory, cell=Py_ssize_t, process=Py_ssize_t, linger="unsigned long long", is_due_earlier=bint,
        limits="unsigned long long", timeout_ms="unsigned long long", retries="unsigned long long",
    )
    cpdef bint commit(
        self, Py_ssize_t header, unsigned long long commit, Py_ssize_t end, Py_ssize_t count,
        unsigned long long timestamp, Py_ssize_t max_record,
    )

    @cython.locals(result=ProduceRequestResult, future=FutureRecordMetadata)
    cdef FutureRecordMetadata _register(
        self, PartitionQueue queue, Py_ssize_t slot, Py_ssize_t header, Py_ssize_t index, long long timestamp,
        callback, unsigned long long sizes,
    )

    @cython.locals(
        header=Py_ssize_t, start=Py_ssize_t, added=Py_ssize_t, compressed="unsigned long long", record=bytes,
        now_us="unsigned long long", end=Py_ssize_t, lock=SlabLock, result=tuple, future=FutureRecordMetadata,
        words=Py_ssize_t, linger="unsigned long long", limits="unsigned long long",
    )
    cpdef tuple begin_batch(
        self, PartitionQueue queue, Py_ssize_t slot, long long timestamp, bytes body, callback, large,
        unsigned long long sizes,
    )

    @cython.locals(memory=SlabMemory)
    cpdef list places_of_large(self, Py_ssize_t slot, Py_ssize_t header, Py_ssize_t size)

    @cython.locals(words=word[::1], process=Py_ssize_t)
    cdef _place(
        self, PartitionQueue queue, Py_ssize_t slot, unsigned long long state, Py_ssize_t added,
        unsigned long long compressed,
    )

    @cython.locals(header=Py_ssize_t)
    cdef _claim(self, PartitionQueue queue, Py_ssize_t slot)
