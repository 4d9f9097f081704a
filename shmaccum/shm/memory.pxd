cimport cython

# A word of the slab, in C. Each access is one load or store, which the compiler neither omits nor moves across another.
# A process that reads a word (the commit word) also sees what was stored before it (the record): x86-64 keeps the order
# of loads and of stores. Elsewhere, GCC makes accesses C's sequentially consistent atomics. Clang does not compile what
# Cython does with atomic types; with -fms-volatile, which setup.py adds, it loads with acquire and stores with release.
# docs/internals/memory-order.md has the argument.

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__x86_64__) || defined(SHMACCUM_VOLATILE_ACQUIRES_AND_RELEASES)
    typedef volatile uint64_t shmaccum_word;
    #elif defined(__clang__)
    #error "compile with -fms-volatile -DSHMACCUM_VOLATILE_ACQUIRES_AND_RELEASES, as setup.py does"
    #else
    typedef _Atomic(uint64_t) shmaccum_word;
    #endif
    """
    ctypedef unsigned long long word "shmaccum_word"

cdef Py_ssize_t _WORD
cdef Py_ssize_t _STATE
cdef Py_ssize_t _CHAIN
cdef unsigned long long _STATE_BITS

@cython.final
cdef class SlabMemory:
    cdef word[::1] words
    cdef readonly object buffer
    cdef Py_ssize_t partitions_at
    cdef Py_ssize_t headers_at
    cdef Py_ssize_t header_words
    cdef Py_ssize_t slots_at
    cdef Py_ssize_t slot_size
    cdef Py_ssize_t slot_count
    cdef Py_ssize_t max_processes
    cdef Py_ssize_t max_partitions

    @cython.locals(words=word[::1], slot=Py_ssize_t, following="unsigned long long")
    cpdef list chain(self, Py_ssize_t first, unsigned long long count)

    @cython.locals(
        behind=Py_ssize_t, index=Py_ssize_t, before=Py_ssize_t, at=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t,
    )
    cpdef list places(self, list slots, Py_ssize_t begin, Py_ssize_t end)

    cpdef write(self, list places, data)
    cpdef close(self)
    cpdef unsigned long long fault_in(self, Py_ssize_t place)
