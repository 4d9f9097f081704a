cimport cython
from shmaccum.accumulator.append.pending_batches cimport PendingBatches
from shmaccum.shm.histograms cimport count as count_value, count_sample
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _COMMIT
cdef Py_ssize_t _GENERATION
cdef Py_ssize_t _BASE_TIMESTAMP
cdef int _SIZE_SHIFT
cdef Py_ssize_t _COUNT_MASK

@cython.final
cdef class _NewBatches:
    cdef object records
    cdef object rows
    cdef list cuts
    cdef list sizes
    cdef list compressed
    cdef list compressed_words
    cdef bint is_open

@cython.final
cdef class ColumnAppender:
    cdef object _records
    cdef object _batches
    cdef object _check_usable
    cdef object _compressor
    cdef object _slab
    cdef PendingBatches _pending
    cdef SlabMemory _memory
    cdef Py_ssize_t _header_size
    cdef Py_ssize_t _slot_size
    cdef unsigned long long _slot_count
    cdef Py_ssize_t _slots_at
    cdef Py_ssize_t _headers_at
    cdef Py_ssize_t _header_words

    @cython.locals(words=word[::1], slot=Py_ssize_t, header=Py_ssize_t)
    cdef _open_batch(self, queue)

    @cython.locals(
        slot=Py_ssize_t, commit="unsigned long long", size=Py_ssize_t, before=Py_ssize_t, count=Py_ssize_t,
    )
    cdef Py_ssize_t _fill_open_batch(self, queue, bodies, future) except -1

    @cython.locals(cuts=list, sizes=list, last=Py_ssize_t, is_open=bint, number=Py_ssize_t)
    cdef _NewBatches _new_batches(self, bodies, records)

    @cython.locals(
        sizes=list, cuts=list, end=Py_ssize_t, taken=list, slots=list, is_open=bint, results=list,
    )
    cdef Py_ssize_t _place(
        self, queue, _NewBatches batches, Py_ssize_t first, future, deadline_s
    ) except -1

    @cython.locals(
        sizes=list, cuts=list, bases=list, latest=list, largest=list, compressed_words=list,
        now_us="unsigned long long", index=Py_ssize_t, number=Py_ssize_t, slot=Py_ssize_t, place=Py_ssize_t,
    )
    cdef _fill(self, _NewBatches batches, Py_ssize_t first, list slots)

    @cython.locals(places=list)
    cdef _write_large(self, _NewBatches batches, Py_ssize_t number, Py_ssize_t slot)

    cdef _note_largest(self, Py_ssize_t size)
