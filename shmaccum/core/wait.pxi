"""The timed wait for a named semaphore: by the monotonic clock, where the C library can (glibc 2.30 or later).

Elsewhere it is the wall clock, which can be set: so wait in slices.
"""

cdef extern from * nogil:
    """
    #include <errno.h>
    #ifdef __GLIBC__
    #if __GLIBC_PREREQ(2, 30)
    #define HAS_SEM_CLOCKWAIT 1
    #else
    /* Compiled for an older glibc, as wheels are: it can run with a newer one. */
    #include <semaphore.h>
    #include <time.h>
    extern int sem_clockwait(sem_t *, clockid_t, const struct timespec *) __attribute__((weak));
    #define HAS_SEM_CLOCKWAIT (sem_clockwait != NULL)
    #endif
    #else
    #define HAS_SEM_CLOCKWAIT 0
    #define sem_clockwait(semaphore, clock, deadline) sem_timedwait(semaphore, deadline)
    #endif
    """
    bint HAS_SEM_CLOCKWAIT
    int sem_clockwait(sem_t *semaphore, clockid_t clock, const timespec *deadline)
    int sem_timedwait(sem_t *semaphore, const timespec *deadline)


@cython.final
@cython.no_gc
cdef class SemaphoreWait:
    """Waits for one semaphore.

    It is opened with the GIL held, as `posix_ipc` does: the C library takes a lock, which a child that
    another thread forks meanwhile would inherit.

    Args:
        name: of the semaphore; the caller has checked whose file it is.

    Raises:
        OSError: it cannot be opened; names it.
    """

    cdef sem_t *semaphore

    def __cinit__(self, str name not None):
        self.semaphore = sem_open(name.encode(), 0)
        if self.semaphore == SEM_FAILED:
            self.semaphore = NULL
            PyErr_SetFromErrnoWithFilenameObject(OSError, name)

    def __dealloc__(self):
        if self.semaphore != NULL:
            sem_close(self.semaphore)

    def into(self, list unit not None, double timeout_s):
        """Put an item into ``unit`` if the semaphore was acquired within ``timeout_s``.

        Signal handlers run during the wait, but not between the acquire and the item, which would lose the unit. An
        exception of a handler ends the wait.
        """
        cdef clockid_t clock = CLOCK_MONOTONIC if HAS_SEM_CLOCKWAIT else CLOCK_REALTIME
        cdef timespec deadline
        cdef int64_t end_ns
        cdef int code
        clock_gettime(clock, &deadline)
        end_ns = deadline.tv_nsec + <int64_t>(timeout_s * 1e9) + 999  # rounded up
        if end_ns < 0:
            end_ns = 0
        deadline.tv_sec += end_ns // 1_000_000_000
        deadline.tv_nsec = end_ns % 1_000_000_000
        while True:
            with nogil:
                if HAS_SEM_CLOCKWAIT:
                    code = errno if sem_clockwait(self.semaphore, clock, &deadline) else 0
                else:
                    code = errno if sem_timedwait(self.semaphore, &deadline) else 0
            if not code:
                unit.append(None)
                return
            if code != EINTR:
                return
            PyErr_CheckSignals()
