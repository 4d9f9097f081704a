/*
 * The lock between processes and its takeover, as shmaccum.shm.locks.SlabLock has it.
 *
 * N processes, one lock. Every load and every store of a shared word is a step of its own, and so is every question
 * to the kernel. Between any two steps a process may be killed (DEATHS times in all), or stopped for any time: that is
 * only not being scheduled. Processes come and go as they like, and entries of the process table are used again.
 *
 *   in the code                                            here
 *   shmaccum.shm.locks.SlabLock.acquire                    idle, waiting, got_it
 *   shmaccum.shm.locks.SlabLock.__exit__                   leaving
 *   shmaccum.shm.locks.SlabLock._leave                     giving_up
 *   shmaccum.shm.locks.SlabLock._rest                      waiting, giving_up, idle
 *   shmaccum.shm.locks.SlabLock._wait                      waiting, ran_out, not_now
 *   shmaccum.shm.takeover.LockWait.take_over                  ran_out to not_now
 *   shmaccum.shm.takeover.LockWait._succeed                   ran_out to forget
 *   shmaccum.shm.takeover.LockWait._died_holding              named
 *   shmaccum.shm.takeover.LockWait._renew_looks               not_now
 *   shmaccum.shm.takeover.Look.__init__                    look_anew
 *   shmaccum.shm.takeover.Look.proves_dead_holder          conclude
 *   shmaccum.shm.takeover.LockState.dead                   look_anew
 *   shmaccum.shm.takeover.LockState.forget_dead            forget
 *   shmaccum.shm.processes.ProcessTable.dead_incarnation   look_anew, named, forget
 *   shmaccum.shm.processes.ProcessTable.take               end_absent
 *   shmaccum.shm.processes.ProcessTable.leave              idle
 *   shmaccum.shm.processes.ProcessTable.free_dead          free_dead
 *   shmaccum.shm.slab.Slab.reap_dead                       forget, free_dead
 *
 * `parked`, `released` and the incarnation only grow. All that anybody asks of them is whether they have moved since
 * they were read, and that is what is kept, for each reader and entry: exact, and finite without a bound on how often
 * the lock is taken. Where the code decides by time (when a wait is given up), or has several looks to go by, each of
 * which is only read, the model can decide either way at every turn: it keeps a look, takes a new one, or waits on.
 * A load whose answer no other process can change is one step with the next store.
 *
 * Options: -DN=processes -DDEATHS=deaths; -DREAP adds cleaning up behind the dead; -DONE_LOOKER and -DLIVE: options.h;
 * -DPLAIN does without the one reduction of the states (see `spoil`). -DM_... are mutants: mistakes that must be found.
 */

#ifndef N
#define N 3
#endif
#ifndef DEATHS
#define DEATHS 2
#endif

#define THIS 1                  /* values of `wants` */
#define OTHER 2
#define NOBODY 0                /* values of the owner word; else entry + 1 */
#define UNFINISHED (N + 1)

bit semaphore = 1;
byte owner = NOBODY;
byte wants[N];
bit alive[N];                   /* which the kernel knows by the process's byte of the lock file */
byte takeover;                  /* entry + 1 of the holder of the takeover byte of the lock file */
#ifdef REAP
bit in_use[N];                  /* the entry's STATE */
byte lifecycle;                 /* entry + 1 of the holder of the lifecycle byte of the lock file */
#define IN_USE(e) in_use[e]
#else
#define IN_USE(e) true
#endif

/* What a process has read of the others since it began its look; at rest as if it had read nothing. */
typedef Look {
    bit released_moved[N] = 1;
    byte parked_since[N] = 2;   /* by how much `parked` has moved; 2 is two or more */
    bit dead[N];                /* dead, and of the same incarnation still */
    bit same[N];                /* its incarnation was read, and is the same still */
    bit complete                /* the look can be concluded */
#ifdef M_IGNORE_NEWCOMERS
    ; bit came_since[N]
#endif
}
Look look[N];

/* What no process can see. */
byte holder;                    /* entry + 1 of the process that has the semaphore's unit */
bit half_done;                  /* what the lock guards is in the middle of a change */
byte deaths;

#include "options.h"

#define DIE atomic { deaths < DEATHS -> die(); goto end_absent }
#define STEP(...) if :: atomic { __VA_ARGS__ } :: DIE fi

inline first_other() { e = (me == 0 -> 1 : 0) }
inline next_other() { e++; if :: e == me -> e++ :: else fi }

inline forget_look(p) {
    for (j : 0 .. N - 1) {
        look[p].released_moved[j] = 1;
        look[p].parked_since[j] = 2;
        look[p].dead[j] = 0;
        look[p].same[j] = 0
    }
    look[p].complete = 0;
    j = 0
}

/* A complete look that cannot prove anything any more is as good as none: fewer states, and none missed that matters. */
inline spoil(p) {
#if !defined(PLAIN) && !defined(M_NO_RELEASED)
    if :: look[p].complete -> forget_look(p) :: else fi
#else
    skip
#endif
}

inline count_parked(p) {
    for (i : 0 .. N - 1) { if :: look[i].parked_since[p] < 2 -> look[i].parked_since[p]++ :: else fi }
    i = 0
}

inline count_released(p) {
    for (i : 0 .. N - 1) { look[i].released_moved[p] = 1; spoil(i) }
    i = 0
}

inline raise_incarnation(p) {
    for (i : 0 .. N - 1) {
        look[i].dead[p] = 0;
        look[i].same[p] = 0;
#ifdef M_IGNORE_NEWCOMERS
        look[i].came_since[p] = 1
#endif
    }
    i = 0
}

#ifdef M_LOOK_ONCE
#define NO_LOOK_YET looked = 0
#else
#define NO_LOOK_YET skip
#endif
inline rest() { e = 0; o = 0; found = 0; reaping = 0; NO_LOOK_YET; forget_look(me) }

/* Of a dead process that has the semaphore's unit it can be seen that it has it, or may have it. */
#define NOT_LOST (holder == 0 || alive[holder - 1] || owner == holder || (wants[holder - 1] == THIS && IN_USE(holder - 1)))

inline die() {
    deaths++;
    alive[me] = 0;
    assert(NOT_LOST);
    if :: takeover == me + 1 -> takeover = 0 :: else fi;
#ifdef REAP
    if :: lifecycle == me + 1 -> lifecycle = 0 :: else fi;
#endif
    rest()
}

proctype process(byte me) {
    byte e;                     /* entry that a loop is at */
    byte o;                     /* owner word as read */
    bit found;                  /* a dead process wants the lock */
    bit reaping;                /* forgets the dead without having taken over from one */
    byte i, j;
#ifdef M_LOOK_ONCE
    bit looked;
#endif

end_absent:
#ifdef REAP
    atomic { lifecycle == 0 -> lifecycle = me + 1 };
#endif
#ifdef M_REUSE_WANTED
    atomic { wants[me] = 0; assert(NOT_LOST); alive[me] = 1 };
#else
    /* An entry whose `wants` is set is not used again. */
    atomic {
        if
        :: wants[me] == 0 && (COMES_AND_GOES || !deaths) -> alive[me] = 1
#ifdef REAP
        :: wants[me] != 0 -> lifecycle = 0; goto end_absent
#endif
        fi
    };
#endif
    STEP(raise_incarnation(me));
#ifdef REAP
    STEP(in_use[me] = 1);
    STEP(lifecycle = 0);
#endif

idle:
    if
#ifdef M_WANTS_AFTER_UNIT
    :: goto waiting
#else
    :: atomic { wants[me] = THIS; goto waiting }
#endif
    :: atomic { COMES_AND_GOES; WHIM; wants[me] = OTHER; goto elsewhere }
#ifdef REAP
    :: atomic { lifecycle == 0 -> lifecycle = me + 1; goto free_dead }
    :: atomic { lifecycle == 0 -> lifecycle = me + 1 };
       STEP(in_use[me] = 0);
       STEP(alive[me] = 0; lifecycle = 0; goto end_absent)
#else
    :: atomic { COMES_AND_GOES; WHIM; alive[me] = 0; goto end_absent }
#endif
    fi;

elsewhere:                      /* waits for another lock, gets it or does not, leaves it: all that shows of it here */
#ifdef M_PARKED_ELSEWHERE
    if
    :: atomic { count_parked(me); goto elsewhere }
    :: true
    :: DIE
    fi;
#endif
    STEP(wants[me] = 0; goto idle);

waiting:
    /* A slice gets the unit; or it finds the semaphore at 0 at some time, and runs out at a later one. */
    if
    :: atomic {
        semaphore == 1 -> semaphore = 0;
        assert(holder == 0); holder = me + 1;
        rest();
        goto got_it
       }
    :: atomic { semaphore == 0 -> goto ran_out }
    :: atomic { WHIM; goto giving_up }      /* to rest, and come back */
    :: DIE
    fi;

ran_out:
    STEP(count_parked(me); if :: LOOKS :: else -> goto not_now fi);
    STEP(
        o = owner;
        if
        :: (o == NOBODY || o == UNFINISHED) && (!look[me].complete || MAY_PASS) -> o = 0; goto not_now
        :: look[me].complete
        :: o != NOBODY && o != UNFINISHED
        fi
    );
    if
    :: o != NOBODY && o != UNFINISHED -> STEP(if :: alive[o - 1] -> o = 0; goto not_now :: else fi)
    :: else
    fi;
    UNDISTURBED_BEGIN
    STEP(
        o = 0;
#ifndef M_NO_TAKEOVER_BYTE
        if
        :: takeover == 0 -> takeover = me + 1
        :: takeover != 0 -> goto not_now
        fi
#endif
    );
    STEP(
        o = owner;
        if
        :: o != NOBODY && o != UNFINISHED -> goto named
        :: (o == NOBODY || o == UNFINISHED) && look[me].complete -> o = 0; first_other(); goto conclude
        :: else -> o = 0; goto free_byte
        fi
    );

named:                          /* the process that is named is dead, and is named still */
#ifndef M_OWNER_READ_ONCE
    STEP(look[me].same[o - 1] = 1);
#endif
    STEP(if :: alive[o - 1] -> goto free_byte :: else fi);
#ifndef M_OWNER_READ_ONCE
    STEP(if :: owner != o -> goto free_byte :: else fi);
    STEP(if :: !look[me].same[o - 1] -> goto free_byte :: else fi);
#endif
    goto take_over;

conclude:                       /* no owner is named, but the process with the unit was dead at the snapshot */
    do
    :: e < N ->
        STEP(if :: wants[e] != THIS -> goto next_wants :: else fi);
#ifdef M_ALIVE_AT_END
        STEP(if :: !alive[e] -> found = 1; goto next_wants :: else fi);
#else
        STEP(if :: look[me].dead[e] -> found = 1; goto next_wants :: else fi);
#endif
#ifdef M_IGNORE_NEWCOMERS
        STEP(if :: look[me].came_since[e] -> goto next_wants :: else fi);
#endif
#ifndef M_NO_PARKED
#ifdef M_PARKED_ONCE
        STEP(if :: look[me].parked_since[e] < 1 -> goto free_byte :: else fi);
#else
        STEP(if :: look[me].parked_since[e] < 2 -> goto free_byte :: else fi);
#endif
#endif
next_wants:
        atomic { next_other() }
    :: else -> break
    od;
    if :: !found -> goto free_byte :: else fi;
    STEP(if :: semaphore == 1 -> goto free_byte :: else -> first_other() fi);
#ifndef M_NO_RELEASED
    do
    :: e < N -> STEP(if :: look[me].released_moved[e] -> goto free_byte :: else -> next_other() fi)
    :: else -> break
    od;
#endif

take_over:
#ifdef M_FORGET_BEFORE_OWNER
    STEP(first_other());
    do
    :: e < N -> STEP(if :: !alive[e] && wants[e] == THIS -> count_released(e); wants[e] = 0 :: else fi; next_other())
    :: else -> break
    od;
#endif
    STEP(
        assert(holder != 0 && !alive[holder - 1]);
        holder = me + 1; owner = me + 1;
        rest(); first_other()
    );
forget:                         /* of every dead process that it does not want the lock any more */
    do
    :: e < N ->
#ifdef M_FORGET_WANTS_FIRST
        STEP(if :: wants[e] != THIS -> goto next_forget :: else fi);
        STEP(if :: alive[e] -> goto next_forget :: else fi);
#else
        STEP(look[me].same[e] = 1);
        STEP(if :: alive[e] || !IN_USE(e) -> goto next_forget :: else fi);
        STEP(if :: wants[e] != THIS -> goto next_forget :: else fi);
        STEP(if :: !look[me].same[e] -> goto next_forget :: else fi);
#endif
#ifndef M_SILENT_FORGET
        STEP(count_released(e));
#endif
        STEP(wants[e] = 0; assert(NOT_LOST));
next_forget:
        atomic { look[me].same[e] = 0; next_other() }
    :: reaping -> break         /* of some */
    :: else -> break
    od;
    if :: reaping -> atomic { rest(); goto unlock } :: else fi;
    STEP(rest(); takeover = 0; goto got_it);

free_byte:
    STEP(if :: o -> look[me].same[o - 1] = 0 :: else fi; e = 0; o = 0; found = 0; takeover = 0);
    UNDISTURBED_END;
not_now:
    if
#ifdef M_LOOK_ONCE
    :: !looked -> goto look_anew
    :: looked -> goto waiting
#else
    :: LOOKS && (MAY_PASS || !look[me].complete) -> goto look_anew
    :: !LOOKS || MAY_PASS || look[me].complete -> goto waiting
#endif
    :: atomic { WHIM; goto giving_up }
    fi;

look_anew:
    STEP(rest(); first_other());
    do :: e < N -> STEP(look[me].released_moved[e] = 0; next_other()) :: else -> break od;
#ifdef M_ALIVE_AFTER_PARKED
    atomic { first_other() };
    do :: e < N -> STEP(look[me].parked_since[e] = 0; next_other()) :: else -> break od;
#endif
    atomic { first_other() };
    do
    :: e < N ->
#ifdef M_INCARNATION_AFTER_ALIVE
        STEP(found = !alive[e] && IN_USE(e));
        STEP(look[me].dead[e] = found; found = 0; next_other())
#else
        STEP(look[me].same[e] = 1);
        STEP(look[me].dead[e] = !alive[e] && IN_USE(e) && look[me].same[e]; look[me].same[e] = 0; next_other())
#endif
    :: else -> break
    od;
#ifndef M_ALIVE_AFTER_PARKED
    atomic { first_other() };
    do :: e < N -> STEP(look[me].parked_since[e] = 0; next_other()) :: else -> break od;
#endif
    atomic {
        e = 0;
#ifdef M_LOOK_ONCE
        looked = 1;
#endif
#ifdef M_IGNORE_NEWCOMERS
        for (i : 0 .. N - 1) { look[me].came_since[i] = 0 };
#endif
#ifdef PLAIN
        look[me].complete = 1;
#else
        for (i : 0 .. N - 1) { if :: look[me].dead[i] && wants[i] == THIS -> look[me].complete = 1 :: else fi };
        for (i : 0 .. N - 1) { if :: i != me && look[me].released_moved[i] -> spoil(me) :: else fi };
        if :: !look[me].complete -> forget_look(me) :: else fi;
#endif
        i = 0;
        if :: goto waiting :: WHIM; goto giving_up fi
    };

giving_up:
    STEP(rest(); wants[me] = 0; goto idle);

got_it:
progress:
#ifdef M_WANTS_AFTER_UNIT
    STEP(wants[me] = THIS);
#endif
    STEP(o = owner; owner = me + 1);
    STEP(
#ifndef M_NO_REBUILD
        if :: o -> half_done = 0 :: else fi;
#endif
        o = 0; assert(!half_done)
    );
#if defined(REAP) || defined(ONE_LOOKER)
    if
    :: atomic { reaping = 1; first_other(); goto forget }
    :: atomic { half_done = 1 }
    :: DIE
    fi;
#else
    STEP(half_done = 1);
#endif
    if
#ifdef M_POST_BEFORE_OWNER
    :: atomic { half_done = 0; assert(holder == me + 1); holder = 0; semaphore = 1 }
#else
    :: atomic { half_done = 0; owner = NOBODY }
#ifdef M_NO_UNFINISHED
    :: atomic { owner = NOBODY }
#else
    :: atomic { owner = UNFINISHED }    /* an exception has ended the change half-way */
#endif
#endif
    :: DIE
    fi;
    goto leaving;
unlock:
    STEP(owner = NOBODY);
leaving:
#ifdef M_POST_BEFORE_OWNER
    STEP(owner = NOBODY);
#else
#ifdef M_RELEASED_BEFORE_POST
    STEP(count_released(me));
#endif
    STEP(assert(holder == me + 1); holder = 0; semaphore = 1);
#endif
#ifdef M_WANTS_BEFORE_RELEASED
    STEP(wants[me] = 0);
    STEP(count_released(me); goto idle);
#endif
#ifndef M_RELEASED_BEFORE_POST
    STEP(count_released(me));
#endif
    STEP(wants[me] = 0);
#ifdef LIVE
end_served: false;              /* a process that had its turn does not return: only waiting ones are of interest */
#else
    goto idle;
#endif

#ifdef REAP
free_dead:                              /* no other process comes or goes meanwhile */
    atomic { first_other() };
    do
    :: e < N ->
#ifdef M_FREE_WANTS_FIRST
        STEP(if :: wants[e] -> goto next_free :: else fi);
        STEP(if :: alive[e] -> goto next_free :: else fi);
#else
        STEP(if :: alive[e] -> goto next_free :: else fi);
        STEP(if :: wants[e] -> goto next_free :: else fi);
#endif
        STEP(in_use[e] = 0; assert(NOT_LOST));
next_free:
        atomic { next_other() }
    :: else -> break
    od;
    STEP(e = 0; lifecycle = 0; goto idle)
#endif
}

init {
    atomic { byte p; for (p : 0 .. N - 1) { run process(p) } }
}
