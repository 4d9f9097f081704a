cimport cython

cdef class Wakeup

@cython.final
cdef class Listener:
    cdef Wakeup _wakeup
    cdef long long _seen

    cpdef expect(self, completions)

    cpdef bint wait(self, double timeout_s) except -1

    @cython.locals(wakeup=Wakeup)
    cpdef bint _check(self) except -1

    @cython.locals(wakeup=Wakeup, mine=bint, woken=list)
    cpdef bint _wait(self, double timeout_s) except -1

@cython.final
cdef class Wakeup:
    cdef readonly object semaphore
    cdef object clock_wait
    cdef public long long count
    cdef object _words
    cdef Py_ssize_t _asleep_at
    cdef readonly bint is_closed
    cdef object mutex
    cdef readonly object changed
    cdef public bint waiting
    cdef dict listeners

    cpdef check_open(self)

    cpdef expect(self, Listener listener, completions)

@cython.final
cdef class Wakeups:
    cdef object _private
    cdef object _words
    cdef object _geometry
    cdef object _mutex
    cdef dict _semaphores
    cdef dict _doorbells
    cdef dict _pressed

    cpdef wake(self, entry)

    cdef _post(self, entry)

    cdef _press(self, entry)

    cpdef wake_for_completions(self, entry)

@cython.final
cdef class Doorbell:
    cdef object _words
    cdef object _barrier
    cdef readonly int descriptor
    cdef readonly bint is_listening

    cpdef listen(self)

    cpdef sleep_until(self, double time_ms)

    cpdef look(self)

    cpdef answer(self)

@cython.final
cdef class DoorbellButton:
    cdef object _path
    cdef object _words
    cdef object _mutex
    cdef readonly object fifo
    cdef bint _closed

    cpdef open(self)

    cpdef press(self)

    cpdef bint is_needed_by(self, long long due_ms, long long now_ms)
