"""The thread mutex of `shmaccum.shm.turn`, in C; uncompiled, that module uses `threading`."""

import time

from cpython.pythread cimport PyThread_get_thread_ident

from shmaccum.shm import native


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
