"""Taking and posting a named semaphore in C: what `posix_ipc` does, but without letting go of the GIL in between.

It is all that is not Python in the compiled form, and there is nothing in it but two calls of the C library. Neither of them
waits. (Where it is not compiled, `shmaccum.shm.locks` has `posix_ipc` do it.)
"""

from posix.fcntl cimport O_RDWR


cdef extern from "<semaphore.h>" nogil:
    sem_t *sem_open(const char *name, int flags)
    sem_t *SEM_FAILED
    int sem_close(sem_t *semaphore)
    int sem_trywait(sem_t *semaphore)
    int sem_post(sem_t *semaphore)


cdef class FastSemaphore:
    """A named semaphore that exists.

    Raises:
        OSError: it does not, or cannot be opened.
    """

    def __cinit__(self, name: str):
        self._address = sem_open(name.encode(), O_RDWR)
        if self._address == SEM_FAILED:
            self._address = NULL
            raise OSError(f"semaphore {name} cannot be opened")

    def __dealloc__(self):
        if self._address != NULL:
            sem_close(self._address)

    cpdef take_into(self, list unit):
        """Put an item into ``unit`` if a unit was to be had at once."""
        if self._address == NULL:
            raise ValueError("the semaphore is closed")
        if sem_trywait(self._address) == 0:
            try:
                unit.append(None)
            except BaseException:
                sem_post(self._address)
                raise

    def post(self):
        """Give a unit back."""
        if self._address == NULL:
            raise ValueError("the semaphore is closed")
        sem_post(self._address)

    cpdef close(self):
        """Let go of it."""
        if self._address != NULL:
            sem_close(self._address)
            self._address = NULL
