"""The timed wait for a named semaphore by the monotonic clock, which `shmaccum.shm.clockwait` opens."""

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
    #define sem_clockwait(semaphore, clock, deadline) (errno = ENOSYS, -1)
    #endif
    """
    bint HAS_SEM_CLOCKWAIT
    int sem_clockwait(sem_t *semaphore, clockid_t clock, const timespec *deadline)

HAS_CLOCKWAIT = bool(HAS_SEM_CLOCKWAIT)
"""Whether the C library has ``sem_clockwait``."""


def wait_into(size_t address, list unit not None, double timeout_s):
    """Put an item into ``unit`` if the semaphore at an address was acquired within ``timeout_s``.

    Signal handlers run during the wait, but not between the acquire and the item, which would lose the unit. An
    exception of a handler ends the wait.
    """
    cdef sem_t *semaphore = <sem_t *>address
    cdef timespec deadline
    cdef int64_t end_ns
    cdef int code
    clock_gettime(CLOCK_MONOTONIC, &deadline)
    end_ns = deadline.tv_nsec + <int64_t>(timeout_s * 1e9) + 999  # rounded up
    if end_ns < 0:
        end_ns = 0
    deadline.tv_sec += end_ns // 1_000_000_000
    deadline.tv_nsec = end_ns % 1_000_000_000
    while True:
        with nogil:
            code = errno if sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline) else 0
        if not code:
            unit.append(None)
            return
        if code != EINTR:
            return
        PyErr_CheckSignals()
