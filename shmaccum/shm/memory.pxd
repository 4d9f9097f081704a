# A word of the slab, in C. Each access to one is a single load or store that the compiler neither leaves out nor moves
# across another one. What is stored before a word (a record, before the commit word) is there for whoever reads the word:
# x86-64 keeps the order of loads and of stores by itself; everywhere else they are C's sequentially consistent atomics.

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__x86_64__)
    typedef volatile uint64_t shmaccum_word;
    #else
    typedef _Atomic(uint64_t) shmaccum_word;
    #endif
    """
    ctypedef unsigned long long word "shmaccum_word"

cdef Py_ssize_t _WORD

cdef class SlabMemory:
    cdef word[::1] words
    cdef readonly object buffer
    cdef Py_ssize_t partitions_at
    cdef Py_ssize_t headers_at
    cdef Py_ssize_t header_words
    cdef Py_ssize_t slots_at
    cdef Py_ssize_t slot_size
    cdef Py_ssize_t contributor_words
    cdef Py_ssize_t max_processes
    cpdef close(self)
    cpdef unsigned long long fault_in(self, Py_ssize_t place)
