cimport cython
from shmaccum.shm.memory cimport SlabMemory, word

cdef bint _COMPILED
cdef Py_ssize_t _TOTAL
cdef Py_ssize_t _LARGEST
cdef Py_ssize_t _BUCKETS
cdef unsigned long long _ALL_BITS
cdef Py_ssize_t _LAST_BUCKET
cdef int _EXACT
cdef int _PARTS
cdef Py_ssize_t _LEAST_STEP
cdef Py_ssize_t _MOST_SAMPLES

# No local of the words: to take a reference to a memory view costs more than the rest.
@cython.locals(octave=Py_ssize_t, part="unsigned long long", bucket=Py_ssize_t, place=Py_ssize_t)
cpdef count(SlabMemory memory, Py_ssize_t at, unsigned long long value, unsigned long long times=*)

@cython.locals(sample="const long long[:]", index=Py_ssize_t, number=Py_ssize_t, step=Py_ssize_t)
cpdef count_sample(SlabMemory memory, Py_ssize_t at, values, long long more)
