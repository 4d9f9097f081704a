/*
 * The life of slots and records: allocate, fill, place, append, close, drain, number, send, complete, free; with
 * producers and senders killed at every step (DEATHS times in all), and what the next ones make of the remains.
 *
 * P producers append RECORDS records each to one partition, in S slots of CAP records; the first LARGE records of all
 * take a chain of two slots each, and are whole only if both have their bytes. One sender at a time sends to a
 * broker that keeps what it has got on the wire though the sender dies, and drops what it has stored already, by the
 * sequence number. A lock is one step here, with its takeover: lock.pml is about that. Under a lock, a store of a
 * slot header and the change of the index that follows are two steps; of an index that is half changed a rebuild reads no
 * more than of one that is not, so its change is one step.
 *
 *   in the code                                                        here
 *   shmaccum.pool.buffer_pool.BufferPool.allocate                      allocate
 *   shmaccum.core.pool.slots_take                                      allocate
 *   shmaccum.core.pool.slots_chain                                     allocate
 *   shmaccum.pool.buffer_pool.BufferPool.deallocate                    deallocate
 *   shmaccum.pool.buffer_pool.BufferPool.reclaim                       reclaim
 *   shmaccum.core.pool.slots_give                                      deallocate, GIVE_CHAIN
 *   shmaccum.core.pool.pool_reclaim                                    reclaim
 *   shmaccum.core.pool.slots_rebuild                                   rebuild_pool
 *   shmaccum.accumulator.append.batch_appender.BatchAppender.appending           append
 *   shmaccum.accumulator.append.record_appender.RecordAppender.begin_batch    fill
 *   shmaccum.core.append.append_record                                 try_append
 *   shmaccum.core.append.append_to_open                                try_append
 *   shmaccum.core.append.append_batch                                  try_append, place
 *   shmaccum.accumulator.append.batch_appender.BatchAppender.free_unused      append
 *   shmaccum.accumulator.append.column_appender.ColumnAppender._placing         allocate to place
 *   shmaccum.core.queue.deque_append                                   place
 *   shmaccum.core.queue.deque_close_open                               try_append, place
 *   shmaccum.core.append.append_rows                                   try_append, of several records
 *   shmaccum.core.append.append_batches                                place, of several
 *   shmaccum.core.queue.deque_pop_first                                drain
 *   shmaccum.core.queue.deque_put_back                                 put_back
 *   shmaccum.core.repair.stripe_rebuild                                rebuild_stripe
 *   shmaccum.core.results.contributions_make                           contribute
 *   shmaccum.accumulator.append.pending_batches.PendingBatches.read        read_ring
 *   shmaccum.core.complete.ring_push                                   finish
 *   shmaccum.core.complete.ring_has                                    finish
 *   shmaccum.core.batch.number_batch                                   drain
 *   shmaccum.accumulator.drain.completer.BatchCompleter.complete             complete
 *   shmaccum.accumulator.drain.completer.BatchCompleter.finish               finish
 *   shmaccum.accumulator.drain.batch_drainer.BatchDrainer.reenqueue          put_back
 *   shmaccum.accumulator.drain.batch_drainer.BatchDrainer.recover            recover
 *   shmaccum.shm.slab.Slab.reap_dead                                   housekeeping
 *
 * Columns place several batches in one turn of the lock: the stores are those of as many producers that place one
 * batch each, one after the other. Slots that are taken and not placed are ALLOCATED, as with one.
 *
 * Checked: a record reaches the log only if it was committed, once, whole, and in the order of the commits; a slot that
 * is taken is FREE, and in no chain; a completion ring does not overflow, and has only its own process's batches. At the
 * end all that was committed is in the log, all slots are free, by header and by bitmap, and no process waits.
 *
 * Options: -DP=producers -DRECORDS= -DS=slots (1 to 3) -DCAP= -DLARGE= -DDEATHS= -DRETRIES=; -DM_... are mutants.
 */

#ifndef P
#define P 2
#endif
#ifndef RECORDS
#define RECORDS 2
#endif
#ifndef S
#define S 2
#endif
#ifndef CAP
#define CAP 2
#endif
#ifndef LARGE
#define LARGE 0
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef RETRIES
#define RETRIES 1
#endif

#define FREE 0
#define ALLOCATED 1
#define OPEN 2
#define CLOSED 3
#define IN_FLIGHT 4
#define COMPLETING 5

#define SENDER P                /* its number among the processes */
#define NONE 255

/* Slot headers and slots: the truth. */
typedef Slot {
    byte state;
    byte owner;                 /* process that allocated it */
#if LARGE
    bit is_chain;               /* SLOTS: a batch of two slots */
    byte next;                  /* + 1: the second slot of its chain */
#endif
    bit generation;             /* its lowest bit: enough to tell two that follow each other */
    byte position;
    byte count;                 /* the commit word */
    byte sequence;              /* + 1; 0 for none */
    bit contributor[P];
    bit result;                 /* 1: stored */
    byte record[CAP]            /* the bytes */
}
Slot slot[S];

/* Indexes, believed under their locks only. */
bit is_free[S] = 1;             /* the bitmap */
byte deque[S];                  /* slots in their order, and how many */
byte queued;
byte open_slot = NONE;
byte next_position;

byte next_sequence;             /* the sender's, in the partition table */

byte pool_lock = NONE;          /* who holds it */
byte stripe_lock = NONE;
#define DEAD 254                /* the holder is dead */

bit dead[P];
byte done;                      /* producers that have ended, one way or the other */
chan ring[P] = [S + 1] of { byte, bit };        /* completions: slot, generation */

chan wire = [DEATHS + RETRIES + 1] of { byte, byte, byte, byte };       /* sequence, count, records */
byte expected;                  /* sequence number that the broker expects */

/* Ghosts. */
byte commits;                   /* records committed so far */
byte rank[P * RECORDS + 1];     /* the number of a record among them, 0 before */
byte logged;                    /* records in the log */
byte deaths;
byte retries;

/* Of all slots, of which there are three at most. */
#define ANY(test) (test(0) || test(S / 2) || test(S - 1))
#define IS_FREE(s) is_free[s]
#define IS_ALLOCATED(s) (slot[s].state == ALLOCATED)
#define IS_PENDING(s) pending[s]
#if S == 3
#define ENOUGH(wanted) (is_free[0] + is_free[1] + is_free[2] >= wanted)
#elif S == 2
#define ENOUGH(wanted) (is_free[0] + is_free[1] >= wanted)
#else
#define ENOUGH(wanted) (is_free[0] >= wanted)
#endif
#define LOWEST_FREE (is_free[0] -> 0 : (is_free[S / 2] -> S / 2 : S - 1))
#if LARGE
#define IS_LARGE(id) (id <= LARGE)
#define WANTED(id) (id <= LARGE -> 2 : 1)
#else
#define IS_LARGE(id) false
#define WANTED(id) 1
#endif

#define DIE atomic { deaths < DEATHS -> die(); goto died }
#define STEP(...) if :: atomic { __VA_ARGS__ } :: DIE fi

#define LOCK(lock, other, rebuild) \
    if \
    :: atomic { lock == NONE -> assert(other != me); lock = me } \
    :: atomic { lock == DEAD -> assert(other != me); lock = me }; rebuild \
    :: DIE \
    fi
#define LOCK_POOL LOCK(pool_lock, stripe_lock, rebuild_pool())
#define LOCK_STRIPE LOCK(stripe_lock, pool_lock, rebuild_stripe())
#define UNLOCK(lock) STEP(lock = NONE)

inline die() {
    deaths++;
    if :: pool_lock == me -> pool_lock = DEAD :: else fi;
    if :: stripe_lock == me -> stripe_lock = DEAD :: else fi;
    if :: me != SENDER -> dead[me] = 1; done++ :: else fi
}

/* Of a batch that has just been freed: the second slot of its chain. */
#if LARGE
#define GIVE_CHAIN(first) \
    if \
    :: slot[first].is_chain -> STEP(assert(slot[first].next > 0); is_free[slot[first].next - 1] = 1) \
    :: else \
    fi;
#else
#define GIVE_CHAIN(first)
#endif

/* Frees what the dead took and never used; header first. */
inline reclaim() {
    s = 0;
    do
    :: s < S ->
        STEP(take_back = (slot[s].state == ALLOCATED));
        if
        :: take_back -> STEP(take_back = dead[slot[s].owner])
        :: else
        fi;
#ifndef M_RECLAIM_READ_ONCE
        if
        :: take_back -> STEP(take_back = (slot[s].state == ALLOCATED))
        :: else
        fi;
#endif
        if
        :: take_back -> STEP(slot[s].state = FREE); GIVE_CHAIN(s) STEP(is_free[s] = 1; take_back = 0)
        :: else
        fi;
        s++
    :: else -> break
    od;
    s = 0
}

/*
 * By the process that takes the lock over from a dead one: the same, and the bitmap is rebuilt. The code reclaims only in
 * `pool_reclaim`; growth.pml has it so.
 */
inline rebuild_pool() {
#ifdef M_NO_INDEX_REBUILD
    skip
#else
    STEP(
        for (s : 0 .. S - 1) { is_free[s] = (slot[s].state == FREE) }
#if LARGE
#ifndef M_REBUILD_WITHOUT_CHAINS
        for (s : 0 .. S - 1) {
            if :: slot[s].state != FREE && slot[s].is_chain -> is_free[slot[s].next - 1] = 0 :: else fi
        }
#endif
#endif
        s = 0
    )
#endif
}

inline rebuild_stripe() {
#ifdef M_NO_INDEX_REBUILD
    skip
#else
    STEP(
        queued = 0; open_slot = NONE; position = 0;
        do
        :: position <= next_position ->
            for (s : 0 .. S - 1) {
                if
                :: (slot[s].state == OPEN || slot[s].state == CLOSED) && slot[s].position == position ->
                    if :: queued > 0 -> slot[deque[queued - 1]].state = CLOSED :: else fi;
                    deque[queued] = s; queued++;
                    open_slot = (slot[s].state == OPEN -> s : NONE)
                :: else
                fi;
                /* Of a batch that was placed, and not yet counted: */
                if
                :: slot[s].state >= OPEN && slot[s].position == next_position -> next_position++
                :: else
                fi
            }
            position++
        :: else -> break
        od;
        position = 0; s = 0
    )
#endif
}

inline count_commit(id) { commits++; assert(rank[id] == 0); rank[id] = commits }

/* Notes the contributor; the process itself remembers which batches it waits for. */
inline contribute(b) {
    if
    :: !(pending[b] && pending_generation[b] == slot[b].generation) ->
        read_ring();
        pending[b] = 1; pending_generation[b] = slot[b].generation
    :: else
    fi;
    slot[b].contributor[me] = 1
}

inline read_ring() {
    do
    :: nempty(ring[me]) ->
        ring[me] ? told, generation;
        if :: pending[told] && pending_generation[told] == generation -> pending[told] = 0 :: else fi
    :: empty(ring[me]) -> break
    od;
    told = 0; generation = 0
}

/* Into the open batch, if there is one with room; under the stripe's lock. `appended` says whether. */
inline try_append() {
    appended = 0;
    if
    :: open_slot != NONE && (slot[open_slot].count == CAP || IS_LARGE(id)) ->
        STEP(slot[open_slot].state = CLOSED);
        STEP(open_slot = NONE)
    :: open_slot != NONE && slot[open_slot].count < CAP && !IS_LARGE(id) ->
#ifdef M_COMMIT_BEFORE_BYTES
        STEP(contribute(open_slot));
        STEP(slot[open_slot].count++; count_commit(id));
        STEP(slot[open_slot].record[slot[open_slot].count - 1] = id; appended = 1)
#else
        STEP(slot[open_slot].record[slot[open_slot].count] = id);
        STEP(contribute(open_slot));
        STEP(slot[open_slot].count++; count_commit(id); appended = 1)
#endif
    :: else
    fi
}

inline fill() {                 /* no other process reads it as long as the slot is ALLOCATED */
    STEP(slot[mine].record[0] = id);
#if LARGE
    if
    :: IS_LARGE(id) -> STEP(slot[other].record[0] = id)
    :: else
    fi;
#endif
    STEP(
        slot[mine].count = 1; slot[mine].sequence = 0; slot[mine].result = 0;
        for (i : 0 .. P - 1) { slot[mine].contributor[i] = 0 }
        i = 0
    )
}

proctype producer(byte me) {
    byte n;                     /* records appended */
    byte id;                    /* the record at hand */
    byte mine = NONE;           /* slot at hand */
#if LARGE
    byte other;                 /* the one behind it in its chain */
#endif
    bit appended;
    bit pending[S];             /* batches that it waits for */
    bit pending_generation[S];
    byte s, i, told, position;
    bit generation, take_back;

append:
    do
    :: n < RECORDS ->
        atomic { id = me * RECORDS + n + 1; read_ring() };
        LOCK_STRIPE;
        try_append();
        UNLOCK(stripe_lock);
        if
        :: appended -> goto next_record
        :: else
        fi;
allocate:
        LOCK_POOL;
        if
        :: atomic {
            ENOUGH(WANTED(id));
            mine = LOWEST_FREE;
            assert(slot[mine].state == FREE)
           };
#if LARGE
           if
           :: IS_LARGE(id) ->   /* any other free slot is the second of the chain */
              atomic {
                other = (mine == 0 && is_free[S / 2] -> S / 2 : S - 1);
                assert(other != mine && is_free[other] && slot[other].state == FREE)
              };
#ifndef M_LINK_LAST
              STEP(slot[mine].next = other + 1)
#endif
           :: else
           fi;
#endif
           STEP(slot[mine].generation = !slot[mine].generation);
#if LARGE
           STEP(slot[mine].is_chain = IS_LARGE(id));
           STEP(slot[mine].owner = me; slot[mine].state = ALLOCATED);
           if
           :: IS_LARGE(id) -> STEP(is_free[other] = 0)
           :: else
           fi;
#else
           STEP(slot[mine].owner = me; slot[mine].state = ALLOCATED);
#endif
           STEP(is_free[mine] = 0);
           UNLOCK(pool_lock)
        :: atomic { !ENOUGH(WANTED(id)) -> skip };
           UNLOCK(pool_lock);
           if
           :: ENOUGH(WANTED(id)) || pool_lock == DEAD -> goto allocate
           :: DIE
           fi
        fi;
#if LARGE && defined(M_LINK_LAST)
        if
        :: IS_LARGE(id) -> STEP(slot[mine].next = other + 1)
        :: else
        fi;
#endif
#ifndef M_STATE_BEFORE_FILL
        fill();
#endif
        LOCK_STRIPE;
        if
        :: true -> try_append() /* the second look */
        :: true                 /* columns begin a batch of their own */
        fi;
        if
        :: !appended ->         /* place */
            STEP(contribute(mine));
            if
            :: open_slot != NONE -> STEP(slot[open_slot].state = CLOSED); STEP(open_slot = NONE)
            :: else
            fi;
            STEP(slot[mine].position = next_position);
#ifdef M_STATE_BEFORE_FILL
            STEP(slot[mine].state = OPEN);
            fill();
            STEP(contribute(mine); count_commit(id));
#else
            STEP(slot[mine].state = (IS_LARGE(id) -> CLOSED : OPEN); count_commit(id));
#endif
            STEP(next_position++);
            STEP(deque[queued] = mine; queued++; open_slot = (IS_LARGE(id) -> NONE : mine));
            mine = NONE
        :: else
        fi;
        UNLOCK(stripe_lock);
        if
        :: mine != NONE ->      /* another process opened a batch meanwhile: the slot is freed */
            LOCK_POOL;
            STEP(assert(slot[mine].state == ALLOCATED && slot[mine].owner == me); slot[mine].state = FREE);
            GIVE_CHAIN(mine)
            STEP(is_free[mine] = 1; mine = NONE);
            UNLOCK(pool_lock)
        :: else
        fi;
next_record:
        atomic { n++; appended = 0; id = 0 }
    :: else -> break
    od;
    do                          /* waits until it has been told of everything */
    :: atomic { nempty(ring[me]) -> read_ring() }
    :: atomic { !ANY(IS_PENDING) -> break }
    :: DIE
    od;
    done++;
died:
    skip
}

/* A batch back to its place in the deque, from where it was taken. */
inline put_back() {
    LOCK_STRIPE;
    STEP(slot[b].state = CLOSED);
    STEP(
        i = queued; queued++;
#ifndef M_PUT_BACK_LAST
        do
        :: i > 0 && slot[deque[i - 1]].position > slot[b].position -> deque[i] = deque[i - 1]; i--
        :: else -> break
        od;
#endif
        deque[i] = b; i = 0
    );
    UNLOCK(stripe_lock)
}

inline deallocate() {
    LOCK_POOL;
    STEP(slot[b].state = FREE);
    GIVE_CHAIN(b)
    STEP(is_free[b] = 1);
    UNLOCK(pool_lock)
}

inline tell_all() {
    i = 0;
    do
    :: i < P ->
        if
        :: atomic { slot[b].contributor[i] && !dead[i] ->
#ifndef M_TELL_AGAIN
            if
            :: again && ring[i] ?? [eval(b), eval(slot[b].generation)]
            :: !(again && ring[i] ?? [eval(b), eval(slot[b].generation)]) ->
#else
            if
            :: true ->
#endif
                assert(nfull(ring[i]) && slot[b].result);
                ring[i] ! b, slot[b].generation
            fi
           }
        :: atomic { !slot[b].contributor[i] || dead[i] -> skip }
        :: DIE
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

/* From COMPLETING to FREE. */
inline finish() {
#ifdef M_FREE_BEFORE_TELLING
    deallocate();
    tell_all()
#else
    tell_all();
    deallocate()
#endif
}

proctype sender(byte me) {
    byte b = NONE;              /* slot at hand */
    byte s, i, position;
    bit again, take_back;

recover:
    STEP(b = 0; again = 1);
    do
    :: b < S ->
        if
        :: slot[b].state == COMPLETING -> finish()
        :: else
        fi;
        b++
    :: else -> break
    od;
    atomic { b = 0; again = 0 };
    do
    :: b < S ->
#ifndef M_NO_SEQUENCE_FIX
        STEP(               /* the last sender may have died between the two stores of the assignment */
            if
            :: slot[b].state >= OPEN && slot[b].sequence == next_sequence + 1 -> next_sequence = next_sequence + slot[b].count
            :: else
            fi
        );
#endif
#ifndef M_NO_RECOVERY
        if
        :: slot[b].state == IN_FLIGHT -> put_back()
        :: else
        fi;
#endif
        b++
    :: else -> break
    od;

idle:
    atomic { b = NONE; s = 0; i = 0; position = 0; again = 0; take_back = 0 };
    if
    :: queued > 0 -> goto drain
    :: (pool_lock == DEAD || ANY(IS_ALLOCATED)) -> goto housekeeping_pool
    :: stripe_lock == DEAD -> goto housekeeping_stripe
    :: atomic {
        done == P && queued == 0 && pool_lock == NONE && stripe_lock == NONE &&
        !ANY(IS_ALLOCATED) ->
        assert(logged == commits);
        for (s : 0 .. S - 1) { assert(slot[s].state == FREE && is_free[s]) };
        goto over
       }
    :: DIE
    fi;

housekeeping_pool:
    LOCK_POOL;
    reclaim();
    UNLOCK(pool_lock);
    goto idle;

housekeeping_stripe:
    LOCK_STRIPE;
    UNLOCK(stripe_lock);
    goto idle;

drain:
    LOCK_STRIPE;
    if
    :: queued > 0 ->
        STEP(b = deque[0]; slot[b].state = IN_FLIGHT);
        STEP(
            if :: open_slot == b -> open_slot = NONE :: else fi;
            queued--;
            for (i : 1 .. S - 1) { deque[i - 1] = deque[i] }
            deque[S - 1] = 0; i = 0
        )
    :: else
    fi;
    UNLOCK(stripe_lock);
    if
    :: b == NONE -> goto idle
    :: else
    fi;
#ifndef M_NEW_SEQUENCE
    if
    :: !slot[b].sequence ->
#else
    if
    :: true ->
#endif
        STEP(slot[b].sequence = next_sequence + 1);
        STEP(next_sequence = next_sequence + slot[b].count)
#ifndef M_NEW_SEQUENCE
    :: else
#endif
    fi;
#if LARGE
    STEP(
        assert(!slot[b].is_chain || slot[slot[b].next - 1].record[0] == slot[b].record[0]);
        wire ! slot[b].sequence - 1, slot[b].count, slot[b].record[0], slot[b].record[CAP - 1]
    );
#else
    STEP(wire ! slot[b].sequence - 1, slot[b].count, slot[b].record[0], slot[b].record[CAP - 1]);
#endif
    if                          /* the answer: it is stored; or that is unknown, and it is sent again */
    :: expected >= slot[b].sequence
    :: atomic { retries < RETRIES -> retries++ }; put_back(); goto idle
    :: DIE
    fi;
complete:
#ifdef M_COMPLETING_FIRST
    STEP(slot[b].state = COMPLETING);
    STEP(slot[b].result = 1);
#else
    STEP(slot[b].result = 1);
    STEP(slot[b].state = COMPLETING);
#endif
    finish();
    goto idle;

died:
    atomic { b = NONE; s = 0; i = 0; position = 0; again = 0; take_back = 0; goto recover };
over:
    skip
}

proctype broker() {
    byte sequence, count, first, last;
end_broker:
    do
    :: atomic {
        wire ? sequence, count, first, last ->
        if
        :: sequence == expected ->
            expected = expected + count;
            assert(first != 0 && rank[first] == logged + 1);
            logged++;
            if
            :: count > 1 -> assert(last != 0 && rank[last] == logged + 1); logged++
            :: else
            fi
        :: sequence < expected          /* a duplicate */
        :: sequence > expected -> assert(false)
        fi;
        sequence = 0; count = 0; first = 0; last = 0
       }
    od
}

init {
    atomic {
        byte p;
        for (p : 0 .. P - 1) { run producer(p) }
        run sender(SENDER);
        run broker()
    }
}
