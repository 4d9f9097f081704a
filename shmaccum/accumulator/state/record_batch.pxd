cimport cython
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _STATE
cdef Py_ssize_t _GENERATION
cdef Py_ssize_t _PARTITION
cdef Py_ssize_t _COMMIT
cdef Py_ssize_t _MAX_TIMESTAMP
cdef Py_ssize_t _BASE_TIMESTAMP
cdef Py_ssize_t _PRODUCER_ID
cdef Py_ssize_t _SEQUENCE
cdef Py_ssize_t _BASE_OFFSET
cdef Py_ssize_t _RESULT
cdef Py_ssize_t _SETTLED
cdef Py_ssize_t _COMPRESSED
cdef Py_ssize_t _PART
cdef Py_ssize_t _SLOTS
cdef Py_ssize_t _CONTRIBUTORS
cdef unsigned long long _COUNT_MASK
cdef int _SIZE_SHIFT
cdef int _STORED_SIZE_SHIFT
cdef unsigned long long _PROGRESS_MASK
cdef unsigned long long _STATE_BITS
cdef unsigned long long _COMPRESSION_BITS
cdef Py_ssize_t _PARTITION_WORDS
cdef unsigned long long _LAST_TIME
cdef long long _LAST_SEQUENCE
cdef unsigned long long _EPOCHS
cdef unsigned long long _SEQUENCE_BITS

@cython.final
cdef class RecordBatch:
    cdef SlabMemory _memory
    cdef readonly Py_ssize_t slot
    cdef readonly Py_ssize_t at
    cdef readonly Py_ssize_t partition
    cdef readonly Py_ssize_t partition_at

    @cython.locals(memory=SlabMemory, at=Py_ssize_t)
    cpdef object buffer(self)

    @cython.locals(memory=SlabMemory, at=Py_ssize_t)
    cpdef set_sequence(self, long long producer_id, unsigned long long epoch, unsigned long long sequence)

    @cython.locals(memory=SlabMemory, at=Py_ssize_t, number="unsigned long long", sequence="unsigned long long")
    cpdef (long long, long long, long long) identity(self)

    @cython.locals(memory=SlabMemory, at=Py_ssize_t)
    cpdef set_result(self, unsigned long long base_offset_word, unsigned long long result_word)

    @cython.locals(memory=SlabMemory, at=Py_ssize_t, number="unsigned long long")
    cpdef long long end_sequence(self)

    @cython.locals(entry=Py_ssize_t, entries=list)
    cpdef list contributors(self)

    @cython.locals(memory=SlabMemory, at=Py_ssize_t, most=Py_ssize_t, bits="unsigned long long")
    cpdef Py_ssize_t next_contributor(self, Py_ssize_t entry)

    @cython.locals(memory=SlabMemory, at=Py_ssize_t, commit="unsigned long long")
    cpdef (long long, long long, long long) contents(self)

    @cython.locals(
        memory=SlabMemory, at=Py_ssize_t, compressed="unsigned long long", start=Py_ssize_t, size=Py_ssize_t,
        count="unsigned long long", slots=list,
    )
    cpdef tuple views(self)

    @cython.locals(
        memory=SlabMemory, at=Py_ssize_t, commit="unsigned long long", compressed="unsigned long long",
        count="unsigned long long", size="unsigned long long", stored_size="unsigned long long",
        settled="unsigned long long", slots="unsigned long long", room="unsigned long long",
        number="unsigned long long",
        has_times=bint, is_known=bint, is_numbered=bint, is_sound=bint,
    )
    cpdef check(self, unsigned long long header_size)

@cython.locals(batch=RecordBatch, partition="unsigned long long")
cpdef RecordBatch batch_in(SlabMemory memory, unsigned long long slot)

cpdef long long next_sequence(long long sequence, long long records)
