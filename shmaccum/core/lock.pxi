"""SlabLock: a word that excludes, and names its holder by the same instruction.

The owner word holds the *ticket* of a process: its entry in the process table + 1, and the entry's incarnation from bit
16 on. No two processes ever have the same ticket, so a ticket of a dead process stays dead::

                 acquire: compare-and-swap
       0  ──────────────────────────────────────▶  ticket  ◀─────────────────────────┐
       ▲                                            │ │ │                             │ compare-and-swap from the
       └──────────────── release ───────────────────┘ │ └── the holder dies ──────────┤ dead ticket to mine, or
                                                      ▼                               │ from UNFINISHED to mine:
                                                  UNFINISHED ─────────────────────────┘ rebuild first
                                       released in the middle of a change

Promises:

* At most one ticket is in the word, so at most one process is inside.
* A dead holder's lock is taken over by one compare-and-swap. The caller has proved the death without the lock. Death is
  final, so the swap itself proves that the dead process is still the holder.
* Who takes over, or takes an unfinished lock, rebuilds what the lock guards before it uses it. If it dies in that, its
  ticket is in the word, and the next one rebuilds.
* A process never takes over from its own ticket: another of its threads is inside.
* No process sleeps here. A waiter killed inside a semaphore would make each later post a system call.

The pool's lock has a *gate* besides, a POSIX semaphore of value 1: who has no unit of it does not try the word. The
gate only queues; the word excludes. A unit is given back by a post only if the value is 0. So a lost unit comes back
with the next release, and a surplus one goes.

The stores in order, and what a death after each leaves:

========  ==================  ========================================================================================
acquire   unit of the gate    no unit: waiters try the word alone when their slice has run out
          owner = ticket      a dead holder
release   owner = 0           no unit, as above
          post                nothing
takeover  owner = ticket      a dead holder; the takeover is not counted
          takeovers += 1      a dead holder
========  ==================  ========================================================================================

Modelled in ``tools/model/lock.pml``; ``docs/inside/proofs.md`` says what the model covers.
"""

cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    sem_t *SEM_FAILED
    sem_t *sem_open(const char *name, int flags)
    int sem_close(sem_t *semaphore)
    int sem_trywait(sem_t *semaphore)
    int sem_post(sem_t *semaphore)
    int sem_getvalue(sem_t *semaphore, int *value)


cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept, void (*parent)() noexcept, void (*child)() noexcept)


cdef enum:
    SPINS = 100  # some microseconds; an append takes less than one
    SPINS_FOR_SENDER = 1000  # as long as it takes the sender to drain eight batches


cpdef enum:
    # Another process holds the lock, or another thread of this one.
    LOCK_BUSY = 0
    # This process holds it.
    LOCK_TAKEN = 1
    # This process holds it, and must rebuild what it guards.
    LOCK_UNFINISHED = 2
    # This process has no ticket: it was forked, or has not joined the slab.
    LOCK_REJOIN = 3


cdef uint64_t _forks = 0
"""How often this process was forked from another: raised in each child, whatever forked it."""


cdef void _in_forked_child() noexcept nogil:
    global _forks
    _forks += 1


pthread_atfork(NULL, NULL, _in_forked_child)


cdef void _open_gate(sem_t *gate) noexcept nogil:
    """Post a unit if there is none."""
    cdef int value = 0
    if gate != NULL:
        step()
        if not sem_getvalue(gate, &value) and value <= 0:
            step()
            sem_post(gate)


cdef inline int lock_try_word(LockLine *line, uint64_t ticket) noexcept nogil:
    """Take the lock if its word is free, without a unit of the gate."""
    cdef uint64_t owner = load_relaxed(&line.owner)
    if owner != 0 and owner != UNFINISHED:
        return LOCK_BUSY
    if not compare_and_swap(&line.owner, owner, ticket):
        return LOCK_BUSY
    return LOCK_UNFINISHED if owner == UNFINISHED else LOCK_TAKEN


cdef inline int lock_try(LockLine *line, sem_t *gate, uint64_t ticket) noexcept nogil:
    """Take the lock if it is free."""
    cdef int status
    if gate != NULL:
        step()
        if sem_trywait(gate):
            return LOCK_BUSY
    status = lock_try_word(line, ticket)
    if status == LOCK_BUSY:
        _open_gate(gate)
    return status


cdef inline int lock_spin(LockLine *line, sem_t *gate, uint64_t ticket, uint64_t sender) noexcept nogil:
    """Try for as long as most holders need: to fall asleep and wake takes much longer.

    The sender's turns are longer than an append, but end soon: `sender` is the low part of its ticket.
    """
    cdef int status = lock_try(line, gate, ticket)
    cdef uint64_t owner
    cdef int left = SPINS
    if status != LOCK_BUSY:
        return status
    if (load_relaxed(&line.owner) & UNFINISHED) == sender:
        left = SPINS_FOR_SENDER
    while left:
        left -= 1
        relax()
        owner = load_relaxed(&line.owner)
        if owner == 0 or owner == UNFINISHED:
            status = lock_try(line, gate, ticket)
            if status != LOCK_BUSY:
                return status
        elif owner == ticket:
            return LOCK_BUSY  # another thread of this process, which perhaps waits for the GIL
    return LOCK_BUSY


cdef int lock_take_over(LockLine *line, uint64_t dead, uint64_t ticket) noexcept nogil:
    """Take the lock from a process that was found dead, if it is still the holder."""
    if dead == ticket or dead == 0 or not compare_and_swap(&line.owner, dead, ticket):
        return LOCK_BUSY
    store_relaxed(&line.takeovers, load_relaxed(&line.takeovers) + 1)
    return LOCK_UNFINISHED


cdef void lock_release(LockLine *line, sem_t *gate, bint unfinished) noexcept nogil:
    store_release(&line.owner, UNFINISHED if unfinished else 0)
    _open_gate(gate)


@cython.final
@cython.no_gc
cdef class SlabLock:
    """One lock of a slab, for code in Python.

    Args:
        segment: the slab, in which this process has a ticket (`Segment.join`) before it uses the lock.
        number: which lock.
        gate: name of the POSIX semaphore that is its gate, if it has one; the caller has checked whose file it is.

    Raises:
        OSError: the semaphore cannot be opened.
        IndexError: there is no such lock.
    """

    cdef Segment segment
    cdef LockLine *line
    cdef sem_t *gate
    cdef readonly int number

    def __cinit__(self, Segment segment not None, int number, str gate=None):
        if not 0 <= number < LOCK_COUNT:
            raise IndexError(f"there are {LOCK_COUNT} locks, none has number {number}")
        self.segment = segment
        self.number = number
        self.line = <LockLine *>(segment.memory + segment.geometry.regions.locks) + number
        if gate is not None:
            self.gate = sem_open(gate.encode(), 0)
            if self.gate == SEM_FAILED:
                self.gate = NULL
                PyErr_SetFromErrno(OSError)

    def __dealloc__(self):
        if self.gate != NULL:
            sem_close(self.gate)

    def acquire_now(self):
        """Acquire the lock if it is free, or becomes free within microseconds.

        Returns:
            A status: `LOCK_TAKEN` or `LOCK_UNFINISHED` if it was acquired; else `LOCK_BUSY`, or `LOCK_REJOIN` for a
            process without a ticket.
        """
        cdef uint64_t ticket = ticket_of(self.segment)
        if ticket == 0:
            return LOCK_REJOIN
        sender = load_relaxed(&(<Superblock *>self.segment.memory).sender_entry)
        return lock_spin(self.line, self.gate, ticket, sender)

    def pass_through(self):
        """Acquire the lock and release it: what its holders have begun is over then.

        Returns:
            (status,).
        """
        status = self.acquire_now()
        if status == LOCK_TAKEN or status == LOCK_UNFINISHED:
            self.release(status == LOCK_UNFINISHED)
            status = LOCK_TAKEN
        return (status,)

    def unblock(self, uint64_t dead):
        """Make the lock free for `acquire_now` if it is blocked by a dead holder, or by a lost unit of the gate.

        It is acquired, whatever its gate says, and released at once. What a dead holder left is unfinished.

        Args:
            dead: the ticket of a process that is proved dead; 0 for none.
        """
        cdef uint64_t ticket = ticket_of(self.segment)
        cdef int status
        if ticket == 0:
            return
        status = lock_take_over(self.line, dead, ticket) if dead else lock_try_word(self.line, ticket)
        if status != LOCK_BUSY:
            lock_release(self.line, self.gate, status == LOCK_UNFINISHED)

    def release(self, bint unfinished=False):
        """Release the lock, if this process holds it; with ``unfinished``, the next holder rebuilds first.

        The full barrier makes the changes visible before the caller looks whether others sleep.
        """
        cdef uint64_t ticket = ticket_of(self.segment)
        if ticket != 0 and load_relaxed(&self.line.owner) == ticket:
            lock_release(self.line, self.gate, unfinished)
        fence()

    @property
    def owner(self):
        """The ticket of the holder; 0 for none, `UNFINISHED` if the last one was interrupted in a change."""
        return load_acquire(&self.line.owner)


cdef uint64_t ticket_of(Segment segment) noexcept:
    """Return this process's ticket in a slab; 0 if it has none, or was forked since it got it."""
    return segment.ticket if segment.forks == _forks else 0
