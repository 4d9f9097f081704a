/*
 * A batch that grows by a slot. Growth is allocation, under the pool's lock. Producers, other processes and senders are
 * killed at every step (DEATHS times in all).
 *
 * Promises:
 *
 *   1. No slot has two owners. A batch owns its first slot, and the slots behind it that its SLOTS word counts.
 *   2. No slot leaks. At the end all are free, by header, bitmap and count, and no process waits.
 *   3. A chain that is read by its count, without the pool's lock, stays within its batch, and has the batch's records.
 *   4. Only the batch that a record found full grows, and only while no process waits for memory.
 *
 * F is an open batch of one slot, which is full: a record fills a slot. P producers append RECORDS records each to it.
 * Under the partition's lock a producer finds that F is full. It remembers F's generation, and SLOTS, which is n. Then
 * it takes the pool's lock. If F is not FREE, generation and SLOTS are as remembered, no process waits, and a slot S is
 * free, it stores:
 *
 *   store                    a death after it leaves
 *   S.CHAIN = 0              nothing: S is FREE, and in no chain
 *   last.CHAIN = S + 1       a link behind the count: no process follows it
 *   F.SLOTS = n + 1          a batch that owns S, and a bitmap that is rebuilt when the lock is taken over
 *   bitmap, free count       the same
 *
 * S stays FREE by its own header, so one store of F.STATE frees all slots that SLOTS counts. Under the partition's lock
 * the producer looks again. If F was drained meanwhile, it has an empty slot until it is freed.
 *
 * T other processes stand for the rest of the host. Each allocates a chain of WANTED slots, writes, reads and frees it.
 * A sender drains F, reads all its slots and frees it. If it dies, the next one continues. Then F can be a slot of
 * another batch.
 *
 *   in the code                                        here
 *   shmaccum.core.pool.pool_grow                       grow
 *   shmaccum.core.pool.slots_grow                      grow
 *   shmaccum.core.pool.pool_allocate                   allocate
 *   shmaccum.core.pool.pool_look                       allocate, after a wait
 *   shmaccum.core.pool.slots_take                      allocate
 *   shmaccum.core.pool.slots_chain                     allocate
 *   shmaccum.core.pool.pool_free                       deallocate
 *   shmaccum.core.pool.slots_give                      give
 *   shmaccum.core.pool.pool_reclaim                    reclaim
 *   shmaccum.core.pool.slots_rebuild                   rebuild_pool
 *
 * Not modelled:
 *
 * - The inside of a lock (lock.pml), and the steps of a slot's life that growth does not touch (pool.pml). A producer
 *   whose record does not fit into F ends.
 * - The order of the tickets: a process that waits takes slots as soon as enough are free. A ticket dies with its
 *   process.
 * - The look at the free count by which reclaim repairs a leak. Here nothing repairs it.
 * - Limits of a batch's or a partition's size: F grows as long as a slot is free.
 *
 * One step here: what a process reads under the lock that guards it, and a change of the indexes, since a rebuild does
 * not read them. Who is dead is known before the pool's lock is taken, so reclaim reads a state once.
 *
 * Options: -DP=producers (1 to 3) -DRECORDS= -DT=others (1 to 3) -DWANTED= (1 or 2) -DS=slots (3 or 4) -DDEATHS=.
 * -DM_... are mutants. -DLEAKS does not check that no slot leaks: some mutants break another promise besides.
 */

#ifndef P
#define P 2
#endif
#ifndef RECORDS
#define RECORDS 1
#endif
#ifndef T
#define T 1
#endif
#ifndef WANTED
#define WANTED 1
#endif
#ifndef S
#define S 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define FREE 0
#define ALLOCATED 1
#define OPEN 2
#define IN_FLIGHT 3

#define F 1                     /* not the lowest: later it can be the first slot of another batch, or the second */
#define ALL (P + T)             /* processes but the sender, which has this number */
#define NONE 255

/* Slot headers and slots: the truth. */
typedef Slot {
    byte state;                 /* from and to FREE under the pool's lock; else under the partition's */
    byte owner;                 /* process that allocated it; a part of the state word */
    byte generation;            /* this, `slots` and `chain`: under the pool's lock */
    byte slots;
    byte chain;                 /* + 1: the next slot */
    byte count;                 /* the commit word: records, and so slots with bytes; under the partition's lock */
    byte record                 /* the bytes: the record's number in its batch */
}
Slot slot[S];

/* Under the pool's lock: indexes, and tickets. */
bit is_free[S] = 1;             /* the bitmap */
byte free_slots = S;
bit waits[ALL];

byte pool_lock = NONE;          /* who holds it */
byte stripe_lock = NONE;
#define DEAD 254                /* the holder is dead */

bit dead[ALL];
byte done;                      /* processes that have ended, one way or the other */

byte remembered[P];             /* F's generation: not a local variable because of `raise_generation` */

/* What no process can see. */
byte batch_of[S];               /* + 1: first slot of the batch that owns a slot, by the headers */
byte deaths;

/* Temporary, within one step. */
hidden byte h, at, nth;

/* Of all slots. */
#if S == 4
#define ANY(test) (test(0) || test(1) || test(2) || test(3))
#define FIRST(test) (test(0) -> 0 : (test(1) -> 1 : (test(2) -> 2 : 3)))
#else
#define ANY(test) (test(0) || test(1) || test(2))
#define FIRST(test) (test(0) -> 0 : (test(1) -> 1 : 2))
#endif
#define IS_FREE(s) is_free[s]
#define IS_ANOTHER(s) (is_free[s] && s != mine)
#define IS_ORPHAN(s) (slot[s].state == ALLOCATED && dead[slot[s].owner])

/* Only others wait. */
#define IS_WAITING (waits[P] || waits[P + T / 2] || waits[ALL - 1])

#define DIE atomic { deaths < DEATHS -> die(); goto died }
#define STEP(...) if :: atomic { __VA_ARGS__ } :: DIE fi

#define LOCK_POOL \
    if \
    :: atomic { pool_lock == NONE -> assert(stripe_lock != me); pool_lock = me } \
    :: atomic { pool_lock == DEAD -> assert(stripe_lock != me); pool_lock = me }; rebuild_pool() \
    :: DIE \
    fi
#define UNLOCK_POOL STEP(pool_lock = NONE)

/* With the first step under it. It guards no index here, so a dead holder leaves nothing to rebuild. */
#define LOCK_STRIPE(...) STEP(stripe_lock == NONE -> assert(pool_lock != me); __VA_ARGS__)

inline die() {
    deaths++;
    if :: pool_lock == me -> pool_lock = DEAD :: else fi;
    if :: stripe_lock == me -> stripe_lock = NONE :: else fi;
    if :: me != ALL -> dead[me] = 1; waits[me] = 0; done++ :: else fi
}

/* Does something with each slot `at` of a batch, as long as there are more; under the pool's lock. */
#define EACH_SLOT(first, more, ...) \
    at = first; nth = 1; \
    do \
    :: true -> \
        __VA_ARGS__; \
        if \
        :: more -> assert(slot[at].chain > 0); at = slot[at].chain - 1; nth++ \
        :: else -> break \
        fi \
    od; \
    at = 0; nth = 0

/* Who owns what, after each store that changes it. What a free slot has besides is of no interest. */
inline note_owners() {
    d_step {
        for (h : 0 .. S - 1) { batch_of[h] = 0 }
        for (h : 0 .. S - 1) {
            if
            :: slot[h].state != FREE ->
                EACH_SLOT(h, nth < slot[h].slots, assert(batch_of[at] == 0); batch_of[at] = h + 1)
            :: else
            fi
        }
        for (h : 0 .. S - 1) {
            if :: batch_of[h] == 0 -> slot[h].owner = 0; slot[h].count = 0; slot[h].record = 0 :: else fi
        }
        h = 0
    }
}

#ifdef M_REBUILD_BY_LINKS
#define IS_COUNTED slot[at].chain > 0 && nth < S
#else
#ifdef M_REBUILD_ONE_SLOT
#define IS_COUNTED false
#else
#define IS_COUNTED nth < slot[h].slots
#endif
#endif

/* The indexes from the headers, by the process that takes the lock over from a dead one. */
inline rebuild_pool() {
#ifdef M_NO_BITMAP_REBUILD
    skip
#else
    STEP(d_step {
        for (h : 0 .. S - 1) { is_free[h] = 1 }
        for (h : 0 .. S - 1) {
            if :: slot[h].state != FREE -> EACH_SLOT(h, IS_COUNTED, is_free[at] = 0) :: else fi
        }
        free_slots = 0;
        for (h : 0 .. S - 1) { free_slots = free_slots + is_free[h] }
        h = 0
    })
#endif
}

/* Frees a batch; header first. */
inline give(b) {
#ifndef M_COUNT_BEFORE_LOCK
    STEP(seen = slot[b].slots);
#endif
    STEP(slot[b].state = FREE; note_owners());
    STEP(d_step { EACH_SLOT(b, nth < seen, is_free[at] = 1; free_slots++) }; seen = 0)
}

inline deallocate(b) {
#ifdef M_COUNT_BEFORE_LOCK
    STEP(seen = slot[b].slots);
#endif
    LOCK_POOL;
    give(b);
    UNLOCK_POOL
}

/* Frees what the dead allocated and never used. */
inline reclaim() {
    do
    :: ANY(IS_ORPHAN) -> STEP(s = FIRST(IS_ORPHAN)); give(s)
    :: else -> break
    od
}

/* The smallest generation that no producer remembers: it only has to differ. */
inline raise_generation(s) {
    d_step {
        nth = 0;
        do
        :: s == F && (remembered[0] == nth || remembered[P / 2] == nth || remembered[P - 1] == nth) -> nth++
        :: else -> break
        od;
        slot[s].generation = nth;
        nth = 0
    }
}

/* A chain of WANTED slots, as `mine`. Goes on at `again` after a wait. */
inline allocate() {
    LOCK_POOL;
    if
    :: atomic { free_slots >= WANTED -> mine = FIRST(IS_FREE); assert(batch_of[mine] == 0) };
#if WANTED == 2
        STEP(s = FIRST(IS_ANOTHER); assert(batch_of[s] == 0); slot[mine].chain = s + 1);
        STEP(slot[s].chain = 0; s = 0);
#else
        STEP(slot[mine].chain = 0);
#endif
        STEP(raise_generation(mine));
#ifndef M_STATE_BEFORE_COUNT
        STEP(slot[mine].slots = WANTED);
#endif
        STEP(slot[mine].owner = me; slot[mine].state = ALLOCATED; note_owners());
#ifdef M_STATE_BEFORE_COUNT
        STEP(slot[mine].slots = WANTED; note_owners());
#endif
        STEP(d_step { EACH_SLOT(mine, nth < WANTED, is_free[at] = 0; free_slots--) }; waits[me] = 0);
        UNLOCK_POOL
    :: atomic { free_slots < WANTED -> waits[me] = 1 };
        UNLOCK_POOL;
        if
        :: free_slots >= WANTED || pool_lock == DEAD -> goto again
        :: DIE
        fi
    fi
}

/* From a slot to the next one of its batch, without the pool's lock. */
#define FOLLOW STEP(assert(slot[s].chain > 0 && batch_of[slot[s].chain - 1] == F + 1); s = slot[s].chain - 1)

#ifdef M_UNDER_STRIPE
#define LOCK_TO_GROW LOCK_STRIPE(stripe_lock = me)
#define UNLOCK_GROWN STEP(stripe_lock = NONE)
#else
#define LOCK_TO_GROW LOCK_POOL
#define UNLOCK_GROWN UNLOCK_POOL
#endif

#ifdef M_WAITERS_READ_FIRST
#define MAY_GROW true
#else
#define MAY_GROW !IS_WAITING
#endif

#ifdef M_NO_LOOK_AT_STATE
#define IS_USED true
#else
#define IS_USED (slot[F].state != FREE)
#endif
#ifdef M_NO_LOOK_AT_GENERATION
#define IS_SAME true
#else
#define IS_SAME (slot[F].generation == remembered[me])
#endif
#ifdef M_NO_LOOK_AT_COUNT
#define IS_FULL true
#else
#define IS_FULL (slot[F].slots == seen)
#endif

proctype producer(byte me) {
    byte records;               /* appended */
    byte seen;                  /* slots of F */
    byte s, last, n;
    bit grew;

look:
    LOCK_STRIPE(
        if
        :: slot[F].state == OPEN && records < RECORDS ->
            remembered[me] = slot[F].generation;
            seen = slot[F].slots;
            if :: slot[F].count < seen -> stripe_lock = me; s = F; n = 1 :: else -> goto grow fi
        :: else -> goto over    /* F is drained, and its record is for another batch */
        fi
    );
    do
    :: n <= slot[F].count -> FOLLOW; n++
    :: else -> break
    od;
append:
    STEP(assert(slot[F].state == OPEN && batch_of[s] == F + 1); slot[s].record = slot[F].count + 1);
    STEP(slot[F].count++; stripe_lock = NONE; records++; s = 0; n = 0; goto look);

grow:
#ifdef M_WAITERS_READ_FIRST
    STEP(if :: IS_WAITING -> goto look :: else fi);
#endif
    LOCK_TO_GROW;
    if
    :: atomic {
        IS_USED && IS_SAME && IS_FULL && MAY_GROW && ANY(IS_FREE) ->
        s = FIRST(IS_FREE);
        assert(batch_of[s] == 0);
        assert(slot[F].generation == remembered[me]);
        assert(!IS_WAITING);
        d_step { EACH_SLOT(F, nth < seen, last = at) }
       };
        STEP(slot[s].chain = 0);
#ifdef M_COUNT_BEFORE_LINK
        STEP(slot[F].slots = seen + 1; note_owners());
        STEP(slot[last].chain = s + 1);
#else
        STEP(slot[last].chain = s + 1);
#ifndef M_COUNT_UNDER_STRIPE
        STEP(slot[F].slots = seen + 1; note_owners());
#endif
#endif
        STEP(is_free[s] = 0; free_slots--; last = 0; grew = 1)
    :: else
    fi;
    UNLOCK_GROWN;
#ifdef M_COUNT_UNDER_STRIPE
    if
    :: grew ->
        LOCK_STRIPE(
            if
            :: slot[F].state == OPEN -> slot[F].slots = seen + 1; note_owners()
            :: else
            fi
        )
    :: else
    fi;
#endif
    if
#ifdef M_NO_LOOK_AGAIN
    :: grew -> LOCK_STRIPE(stripe_lock = me; grew = 0); goto append
#else
    :: atomic { grew -> grew = 0; s = 0; goto look }
#endif
    :: atomic { !grew -> goto look }    /* another process has perhaps made room */
    :: !grew                            /* or its record is for another batch */
    fi;
over:
    done++;
died:
    atomic { records = 0; seen = 0; s = 0; last = 0; n = 0; grew = 0 }
}

/* The rest of the host. */
proctype other(byte me) {
    byte mine = NONE;           /* slot at hand */
    byte s, seen;

again:
    allocate();
    STEP(d_step { EACH_SLOT(mine, nth < WANTED, slot[at].record = NONE) });
    STEP(d_step { EACH_SLOT(mine, nth < WANTED, assert(slot[at].record == NONE)) });
    deallocate(mine);
    done++;
died:
    atomic { mine = NONE; s = 0; seen = 0 }
}

#ifdef M_READ_BY_LINKS
#define HAS_MORE slot[s].chain > 0
#else
#define HAS_MORE n < seen
#endif

proctype sender(byte me) {
    byte s, n, seen;

idle:
    atomic { s = 0; n = 0; seen = 0 };
    if
    :: slot[F].state == OPEN -> LOCK_STRIPE(slot[F].state = IN_FLIGHT); goto send
    :: slot[F].state == IN_FLIGHT -> goto send      /* of a sender that has died */
    :: pool_lock == DEAD || ANY(IS_ORPHAN) -> LOCK_POOL; reclaim(); UNLOCK_POOL; goto idle
    :: atomic {
        done == ALL && pool_lock == NONE && slot[F].state < OPEN && !ANY(IS_ORPHAN) ->
#ifndef LEAKS
        for (s : 0 .. S - 1) { assert(slot[s].state == FREE && is_free[s]) };
        assert(free_slots == S);
#endif
        goto over
       }
    :: DIE
    fi;

send:                           /* it can grow meanwhile */
    STEP(s = F; n = 1; seen = slot[F].slots);
    do
    :: true ->
        STEP(assert(n > slot[F].count || slot[s].record == n));
        if
        :: HAS_MORE -> FOLLOW; n++
        :: else -> break
        fi
    od;
    deallocate(F);
    goto idle;

died:
    goto idle;
over:
    skip
}

init {
    atomic {
        byte p;
        slot[F].state = OPEN; slot[F].slots = 1; slot[F].count = 1; slot[F].record = 1;
        is_free[F] = 0; free_slots--;
        note_owners();
        for (p : 0 .. P - 1) { run producer(p) }
        for (p : P .. ALL - 1) { run other(p) }
        run sender(ALL)
    }
}
