/*
 * A lock between processes, as shmaccum/core/lock.pxi has it: a word that excludes, and for the pool's lock a gate.
 *
 * N processes, the first of which has THREADS threads, and N entries of the process table. Every load and every store
 * of a shared word is a step of its own, and so is every call of the gate and every question to the kernel. Between any
 * two steps a process can be killed, any number of times, or be stopped for any time: that is only not being scheduled.
 * Processes attach, to any entry, and leave as they like.
 *
 *   in the code                                        here
 *   shmaccum.core.lock.lock_try                        waiting to give_back
 *   shmaccum.core.lock.lock_try_word                   word, and the same steps behind `waiting`
 *   shmaccum.core.lock.lock_take_over                  take_over
 *   shmaccum.core.lock.lock_release                    release, unfinished
 *   shmaccum.core.lock._open_gate                      OPEN_GATE
 *   shmaccum.shm.processes.ProcessTable.take           attach
 *   shmaccum.shm.processes.ProcessTable.leave          leave
 *   shmaccum.shm.processes.ProcessTable.free_dead      free_dead
 *   shmaccum.shm.processes.ProcessTable.is_alive       look
 *   shmaccum.shm.slab.Slab.reap_dead                   look to release, and free_dead
 *
 * An incarnation only grows, and all that is ever asked is whether two are equal. So an entry's next incarnation is the
 * smallest number that no word and no living process has of that entry: exact, and finite without a bound on deaths.
 *
 * Checked: one living thread at most was told that it has the lock; no work on what was left half-changed; a gate that
 * is open when no call is under way, without a pile of units; no freed entry that the word names. With LIVE: progress.
 *
 * Options: -DN=processes -DTHREADS=threads of the first; -DGATE for the pool's lock; -DREAP adds freeing the entries of
 * the dead; -DINCARNATION_FIRST is another order of an attach; -DLIVE: options.h. -DM_... are mutants: mistakes that
 * must be found.
 */

#ifndef N
#define N 2
#endif
#ifndef THREADS
#define THREADS 1
#endif
#define ALL (N + THREADS - 1)

/* Values of the owner word: 0, UNFINISHED, or a ticket. */
#define UNFINISHED 255
#define IS_FREE(word) (word == 0 || word == UNFINISHED)
#define ENTRY(ticket) ((ticket - 1) % N)
#ifdef M_NO_INCARNATION
#define TICKET(entry, number) (1 + entry)
#define IS_CURRENT(ticket) true
#else
#define TICKET(entry, number) (1 + entry + N * number)
#define IS_CURRENT(ticket) (incarnation[ENTRY(ticket)] == (ticket - 1) / N)
#endif
#define NAMES(word, entry) (!IS_FREE(word) && ENTRY(word) == entry)

byte owner;
#ifdef GATE
byte gate = 1;
#endif
byte incarnation[N];
byte held[N];                   /* the entry's byte of the lock file: process + 1 that holds it */
byte lifecycle;                 /* the lifecycle byte of the lock file: process + 1 that holds it */
#ifdef REAP
bit in_use[N];                  /* the entry's STATE */
#endif

/* What the threads of a process share. */
byte ticket[N];
bit joined[N];                  /* its threads can use the lock */

/* The owner word as a thread read it: not a local variable because of `raise_incarnation`. */
byte read[ALL];

/* What no process can see. */
byte believer;                  /* thread + 1 that was told that it has the lock, and lives */
bit half_done;                  /* what the lock guards is in the middle of a change */
#if THREADS > 1
bit killed[ALL];                /* another thread's step was the last one of the process */
#endif
bit busy[ALL];                  /* in a call; `leave` waits for it, by a count */
#ifdef GATE
bit unit_lost;                  /* a process died in a call, and none has looked after the gate since */
#endif

#include "options.h"

#define PROCESS(thread) (thread < N -> thread : 0)

#ifdef M_NO_INCARNATION
inline raise_incarnation(entry) { skip }
#else
inline raise_incarnation(entry) {
    i = 0;
    do
    :: i < 2 * N + ALL ->
        taken = owner == TICKET(entry, i);
        for (j : 0 .. N - 1) { taken = taken || (j != p && ticket[j] == TICKET(entry, i)) }
        for (j : 0 .. ALL - 1) { taken = taken || read[j] == TICKET(entry, i) }
        if :: taken -> i++ :: else -> break fi
    od;
    incarnation[entry] = i;
    i = 0; j = 0; taken = 0
}
#endif

#ifdef M_OWN_UNIT_ONLY
#define HAD_UNIT(value) had_unit = value
#else
#define HAD_UNIT(value) skip
#endif
#define FORGET e = 0; rebuild_first = 0; HAD_UNIT(0); i = 0; j = 0; taken = 0

/* The kernel frees what the process held. Its other threads make no step but to notice that they are dead. */
inline die() {
    for (j : 0 .. N - 1) { if :: held[j] == p + 1 -> held[j] = 0 :: else fi }
    if :: lifecycle == p + 1 -> lifecycle = 0 :: else fi;
    if :: believer && PROCESS((believer - 1)) == p -> believer = 0 :: else fi;
    for (j : 0 .. ALL - 1) {
        if
        :: PROCESS(j) == p ->
#ifdef GATE
            unit_lost = unit_lost || busy[j];
#endif
#if THREADS > 1
            killed[j] = (j != me);
#endif
            busy[j] = 0; read[j] = 0
        :: else
        fi
    }
    joined[p] = 0; ticket[p] = 0;
    FORGET
}

#define DIE atomic { MAY_DIE -> goto dying }
#ifdef LIVE
#define STOP atomic { stops < STOPS -> stops++; stopped[p] = 1; goto end_stopped }
#else
#define STOP false
#endif
#define STEP(...) if :: atomic { __VA_ARGS__ } :: DIE :: STOP fi

#ifdef GATE
inline end_call() {
    busy[me] = 0;
    for (j : 0 .. ALL - 1) { taken = taken || busy[j] }
    assert(taken || unit_lost || gate > 0);
    j = 0; taken = 0
}
#ifdef M_ALWAYS_POST
#define NO_UNIT true
#else
#define NO_UNIT gate == 0
#endif
/* Two steps: the value, and the post. */
#define OPEN_GATE(done) \
    STEP(if :: NO_UNIT :: else -> unit_lost = 0; goto done fi); \
    STEP(gate++; assert(gate <= ALL); unit_lost = 0)
#else
inline end_call() { busy[me] = 0 }
#endif

/* The step that makes this thread the holder; `from` is what the word was. */
inline take(from) {
    assert(believer == 0);
    believer = me + 1;
    rebuild_first = (from != 0);
    owner = ticket[p];
    read[me] = 0
}

#ifdef M_OWN_TICKET
#define IS_MINE(word) false
#define HOLDS_BYTE(entry) (held[entry] != 0 && held[entry] != p + 1)    /* as F_GETLK answers */
#else
#define IS_MINE(word) (word == ticket[p])
#define HOLDS_BYTE(entry) (held[entry] != 0)
#endif

#if N > 2
#define ENTRIES :: e = 0 :: e = 1 :: e = 2
#else
#define ENTRIES :: e = 0 :: e = 1
#endif

#if THREADS > 1 && !defined(M_LEAVE_INSIDE)
#define LAST_INSIDE !(me == 0 && busy[N])
#else
#define LAST_INSIDE true
#endif
#ifdef M_LEAVE_INSIDE
#define LEFT skip
#else
#define LEFT ticket[p] = 0
#endif

#ifdef M_NO_UNFINISHED
#define LEFT_UNFINISHED 0
#else
#define LEFT_UNFINISHED UNFINISHED
#endif

proctype thread(byte me) {
    byte p = PROCESS(me);
    byte e;                     /* entry that this process attaches to, or frees */
    bit rebuild_first;
#ifdef M_OWN_UNIT_ONLY
    bit had_unit;
#endif
    byte i, j;
    bit taken;

    do
    ::  {
        if
        :: joined[p] -> goto idle
        :: !joined[p] && me < N
        :: !joined[p] && me >= N -> goto idle
        fi;

end_attach:
        atomic {
            if
            :: me < N && lifecycle == 0 && MAY_WHIM -> COUNT_WHIM; lifecycle = p + 1
            :: me >= N -> goto idle
            fi;
            if ENTRIES fi;
#ifndef M_NAMED_READ_FIRST
            if :: held[e] -> goto not_this :: else fi
#endif
        };
#if defined(M_REUSE_NAMED) || defined(INCARNATION_FIRST)
#elif defined(M_NAMED_READ_FIRST)
        STEP(if :: NAMES(owner, e) -> goto not_this :: else fi);
        STEP(if :: held[e] -> goto not_this :: else fi);
#else
        /* A dead process makes no steps: if it is not named now, it never will be. */
        STEP(if :: NAMES(owner, e) -> goto not_this :: else fi);
#endif
#ifdef INCARNATION_FIRST
        STEP(raise_incarnation(e));
        STEP(held[e] = p + 1);
#else
        STEP(held[e] = p + 1);
        STEP(raise_incarnation(e));
#endif
#ifdef REAP
        STEP(in_use[e] = 1);
#endif
        STEP(ticket[p] = TICKET(e, incarnation[e]); joined[p] = 1; lifecycle = 0; e = 0; goto idle);
not_this:
        atomic { lifecycle = 0; e = 0; goto end_attach };

idle:
end_idle:
        if
        :: atomic { joined[p] -> busy[me] = 1; goto waiting }
        :: atomic { COMES_AND_GOES && me < N && joined[p] -> joined[p] = 0 }
#ifdef REAP
        :: atomic { joined[p] && me < N && lifecycle == 0 -> lifecycle = p + 1; goto free_dead }
#endif
        :: atomic { joined[p] && MAY_DIE -> goto dying }
        fi;

        /* Leave, when no thread is inside. */
        STEP(LAST_INSIDE && lifecycle == 0 -> lifecycle = p + 1);
#ifdef REAP
        STEP(in_use[ENTRY(ticket[p])] = 0);
#endif
        STEP(held[ENTRY(ticket[p])] = 0; LEFT);
        STEP(lifecycle = 0; goto end_attach);

waiting:
#ifdef GATE
        STEP(if :: gate > 0 -> gate-- :: else -> goto slice fi);
#ifdef M_TRUST_GATE
        STEP(take(owner); goto got);
#endif
        STEP(read[me] = owner; if :: !IS_FREE(read[me]) -> read[me] = 0; goto give_back :: else fi);
        STEP(if :: owner == read[me] -> HAD_UNIT(1); take(owner); goto got :: else -> read[me] = 0 fi);
give_back:
#ifndef M_KEEP_UNIT
        OPEN_GATE(slice);
#endif
slice:
#endif
        if
        :: true
        :: atomic { MAY_WHIM -> COUNT_WHIM; end_call(); goto idle }     /* its deadline has passed */
#if defined(GATE) && !defined(LIVE)
        :: goto waiting                                 /* its slice has not run out */
#endif
        fi;

#ifndef M_GATE_ALONE
        STEP(read[me] = owner; if :: !IS_FREE(read[me]) -> read[me] = 0; goto look :: else fi);
#ifdef M_LOAD_AND_STORE
        STEP(take(read[me]); goto got);
#endif
        STEP(if :: owner == read[me] -> take(owner); goto got :: else -> read[me] = 0 fi);
#endif

look:   /* without the lock: is the holder dead? */
        STEP(
            read[me] = owner;
            if :: IS_FREE(read[me]) || IS_MINE(read[me]) -> read[me] = 0; goto waiting :: else fi
        );
        STEP(if :: !IS_CURRENT(read[me]) -> goto take_over :: else fi);
        STEP(if :: HOLDS_BYTE(ENTRY(read[me])) -> read[me] = 0; goto waiting :: else fi);
take_over:
#ifdef M_STORE_OVER
        STEP(take(UNFINISHED); goto got);
#endif
        STEP(if :: owner == read[me] -> take(UNFINISHED) :: else -> read[me] = 0; goto waiting fi);
#ifdef M_NO_REBUILD
        STEP(rebuild_first = 0);
#endif

got:
#ifdef M_IGNORE_UNFINISHED
        STEP(rebuild_first = 0);
#endif
        if
        :: rebuild_first
        :: !rebuild_first -> goto work
        fi;
        STEP(rebuild_first = 0; half_done = 1; if :: goto unfinished :: true fi);    /* an interrupt, or none */
        STEP(half_done = 0; if :: goto work :: goto release fi);     /* or only frees the lock of a dead process */
work:
        STEP(assert(!half_done); half_done = 1; if :: goto unfinished :: true fi);   /* an interrupt, or none */
        STEP(half_done = 0);
release:
        STEP(assert(believer == me + 1); believer = 0; owner = 0; goto released);
unfinished:
        STEP(assert(believer == me + 1); believer = 0; owner = LEFT_UNFINISHED);
released:
#ifdef GATE
#ifdef M_OWN_UNIT_ONLY
        STEP(if :: had_unit -> gate++ :: else fi; unit_lost = 0);
#else
        OPEN_GATE(ended);
#endif
#endif
ended:
        atomic {
            HAD_UNIT(0); end_call();
            if
#ifdef LIVE
            :: goto end_served  /* a thread that had its turn does not return: only waiting ones are of interest */
#else
            :: goto idle
#endif
            fi
        };

#ifdef REAP
free_dead:                      /* no other process comes or goes meanwhile */
        if ENTRIES fi;
#ifdef M_FREE_NAMED_FIRST
        STEP(if :: NAMES(owner, e) -> goto freed :: else fi);
        STEP(if :: held[e] -> goto freed :: else fi);
#else
        STEP(if :: held[e] -> goto freed :: else fi);
        STEP(if :: NAMES(owner, e) -> goto freed :: else fi);
#endif
        STEP(assert(!NAMES(owner, e)); in_use[e] = 0);
freed:
        STEP(lifecycle = 0; e = 0; goto idle);
#endif
dying:
        atomic { COUNT_DEATH; die(); goto end_attach };

end_served:
end_stopped:
        false
        }
#if THREADS > 1
        unless { atomic { killed[me] -> killed[me] = 0; FORGET } }
#endif
    od
}

#ifdef LIVE
proctype excuse() {
end_excuse:
    do
    :: believer && stopped[PROCESS((believer - 1))] -> progress_stopped: skip
    od
}
#endif

init {
    atomic {
        byte t;
#ifdef LIVE
        for (t : 0 .. N - 1) { held[t] = t + 1; ticket[t] = TICKET(t, 0); joined[t] = 1 }
        run excuse();
#endif
        for (t : 0 .. ALL - 1) { run thread(t) }
    }
}
