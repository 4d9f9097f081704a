"""The semaphore and the thread mutex of `shmaccum.shm.locks`, in C.

In the plain form, that module uses `posix_ipc` and `threading`.
"""

import time

from cpython.exc cimport PyErr_SetFromErrno
from cpython.pythread cimport PyThread_get_thread_ident
from posix.fcntl cimport O_RDWR

from shmaccum.shm import native


cdef extern from * nogil:
    """
    #if defined(__x86_64__) || defined(__i386__)
    #define relax() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define relax() __asm__ __volatile__("yield")
    #else
    #define relax() ((void) 0)
    #endif
    """
    void relax()

cdef extern from "<semaphore.h>" nogil:
    sem_t *sem_open(const char *name, int flags)
    sem_t *SEM_FAILED
    int sem_close(sem_t *semaphore)
    int sem_trywait(sem_t *semaphore)
    int sem_post(sem_t *semaphore)

cdef class FastSemaphore:
    """An existing named semaphore. `take` and `post` keep the GIL, since neither waits.

    Raises:
        OSError: it does not exist, or cannot be opened.
    """

    def __cinit__(self, name: str):
        self._address = sem_open(name.encode(), O_RDWR)
        if self._address == SEM_FAILED:
            self._address = NULL
            PyErr_SetFromErrno(OSError)

    def __dealloc__(self):
        if self._address != NULL:
            sem_close(self._address)

    cpdef bint take(self) except -1:
        """Take a unit if one is free; return whether it did."""
        if self._address == NULL:
            raise ValueError("the semaphore is closed")
        return sem_trywait(self._address) == 0

    cpdef bint take_soon(self, word[::1] words, Py_ssize_t owner_at, int looks) except -1:
        """Take a unit once the owner word is 0, within a number of looks at it; return whether it did."""
        cdef const volatile word *owner = &words[owner_at]
        cdef int look
        if self._address == NULL:
            raise ValueError("the semaphore is closed")
        for look in range(looks):
            if not owner[0] and sem_trywait(self._address) == 0:
                return True
            relax()
        return False

    cpdef int post(self) except -1:
        """Return a unit."""
        if self._address == NULL:
            raise ValueError("the semaphore is closed")
        return sem_post(self._address)

    cpdef close(self):
        """Close the semaphore."""
        if self._address != NULL:
            sem_close(self._address)
            self._address = NULL


cdef class FastMutex:
    """The used part of `threading.RLock`. The GIL guards its fields; only waiters need another lock, the gate."""

    def __cinit__(self):
        self._gate = native.Lock()
        self._gate.acquire()

    cdef bint take(self) noexcept:
        """Take it if it is free or this thread's; return whether it did."""
        cdef unsigned long me = PyThread_get_thread_ident()
        if self._depth and self._owner != me:
            return False
        self._owner = me
        self._depth += 1
        return True

    cpdef bint acquire(self, bint blocking=True, double timeout=-1) except -1:
        """Take it; wait for another thread for ``timeout`` seconds, for ever if negative."""
        if self.take():
            return True
        if not blocking:
            return False
        deadline = time.monotonic() + timeout
        self._waiting += 1
        try:
            while not self.take():
                if timeout < 0:
                    self._gate.acquire()
                elif not self._gate.acquire(True, max(0.0, deadline - time.monotonic())):
                    return self.take()
            return True
        finally:
            self._waiting -= 1

    cpdef int release(self) except -1:
        """Undo one acquire."""
        if not self._depth or self._owner != PyThread_get_thread_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        # A waiter tries again. If another thread is faster, that one opens the gate at its release.
        if not self._depth and self._waiting and self._gate.locked():
            self._gate.release()
        return 0

    cpdef bint _is_owned(self):
        """Return whether this thread has it."""
        return self._depth > 0 and self._owner == PyThread_get_thread_ident()

    def __enter__(self):
        self.acquire()

    def __exit__(self, kind, error, trace):
        self.release()
