cimport cython
from shmaccum.pool.slots cimport Buffer, Slots
from shmaccum.pool.waiters cimport WaiterQueue
from shmaccum.shm.locks cimport SlabLock

@cython.final
cdef class BufferPool:
    cdef dict __dict__
    cdef readonly object slab
    cdef readonly Py_ssize_t poolable_size
    cdef readonly Py_ssize_t total_memory
    cdef public object while_waiting
    cdef object _max_block_ms
    cdef object _words
    cdef SlabLock _lock
    cdef Slots _slots
    cdef readonly WaiterQueue _waiters
    cdef bint _closed
    cdef double _started
    cdef object _waited_ns

    cpdef bint is_taken(self, Buffer buffer)
    cpdef _pass_over_the_absent(self, long long me=*)
    cdef _next_waiter(self)
    cdef _wake(self, entry)
    cpdef bint is_exhausted(self)
