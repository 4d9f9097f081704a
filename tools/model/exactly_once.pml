/*
 * Exactly once from Spark: task attempts write in transactions, the driver decides, ends them, and recovers.
 *
 * D drivers on one checkpoint, of which all but one are dead or zombies: a process that never takes a step again is dead,
 * and one that takes it late is a zombie. So deaths need no steps of their own. They run B micro-batches of T tasks. At
 * most ATTEMPTS attempts begin, of any task that a driver has planned: first ones, retries, speculative ones, zombies.
 *
 * A transactional id belongs to a lane of a slab. Only that slab's sender initializes it (InitProducerId), and only for
 * an attempt of a newer plan than the last one that used it. A plan is what a driver makes before the first task of each
 * micro-batch: it fences the driver before it, ends what was decided, lists what is open, writes the plan's number, and
 * only then aborts what it has listed. What it has listed cannot belong to a later plan, however late it aborts. Only the
 * first plan of a driver fences any other; a later one raises the driver's own epoch, or fails if it has that no longer.
 *
 * Behind its decision a driver lists once more, looks whether it is still the last one, and aborts what it has listed and
 * not decided. An attempt that has written asks whether its plan is over, and aborts its own transaction then.
 *
 * The broker keeps one transaction for each id. Like transactions version 1 it lets a producer with an unchanged epoch
 * begin another one after an abort. TIMEOUTS transactions expire; that is the one case that must end in an alarm.
 *
 * Checked: no row becomes visible twice; when Spark notes a batch as done, all its rows are visible, unless the alarm
 * was raised; there is no alarm without an expired transaction; and with LEFT, one driver and no deaths, no transaction
 * is open in the end.
 *
 * Options: -DD=drivers -DB=micro-batches -DT=tasks -DA=concurrent attempts -DATTEMPTS= -DI=ids -DREVOKES= -DTIMEOUTS=;
 * M_... are mutants.
 */

#ifndef D
#define D 2
#endif
#ifndef B
#define B 2
#endif
#ifndef T
#define T 1
#endif
#ifndef A
#define A 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef I
#define I 2
#endif
#ifndef REVOKES
#define REVOKES 1
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0
#endif

#define ROWS 2
/* Writes that an attempt makes: what is interrupted has written only the first. */

#define EMPTY 0
#define OPEN 1
#define COMMITTED 2
#define ABORTED 3

#define TASK(batch, task) ((batch) * T + (task))
#define NONE 255

#ifdef M_REUSED_EARLY
#define MAY_LEASE(i) (lane[i].holder == 0)
#else
#define MAY_LEASE(i) (lane[i].holder == 0 && lane[i].plan < plan)
#endif

typedef Transaction {
	byte epoch;
	byte state;
	byte rows[B * T]
};

typedef Lane {
	byte holder;		/* attempt, 0: free */
	byte generation;	/* of its holder: an append under an older one is refused */
	byte plan		/* of its last use */
};

typedef Result {
	byte id;
	byte epoch
};

typedef Results {
	Result task[T]
};

/* Kafka. */
Transaction txn[I];
byte visible[B * T];
byte driver_epoch;
byte plans;
byte decided;		/* micro-batches */
byte decided_in;	/* the plan of the last decision */
Result decision[T];	/* the transactions of the last one */

/* Spark. */
byte done;		/* micro-batches in its commit log */
byte planned[D];	/* the plan whose tasks may begin, 0: none */
byte batch_of[D];
byte epoch_of[D];	/* of the driver under that plan */
Results results[D];

/* The slab. */
Lane lane[I];

byte attempts = ATTEMPTS;
byte revokes = REVOKES;
byte timeouts = TIMEOUTS;
bool alarm;

/* InitProducerId: fences whoever had the id, and aborts its transaction. */
inline init_producer_id(i)
{
	txn[i].epoch++;
	txn[i].state = EMPTY;
	for (k : 0 .. B * T - 1) {
		txn[i].rows[k] = 0
	}
	k = 0
}

/* EndTxn with COMMIT; it may be repeated. */
inline commit(i, e)
{
	atomic {
		if
		:: txn[i].epoch == e && txn[i].state == OPEN ->
			for (k : 0 .. B * T - 1) {
				visible[k] = visible[k] + txn[i].rows[k];
				txn[i].rows[k] = 0;
				assert(visible[k] <= ROWS)
			}
			k = 0;
			txn[i].state = COMMITTED
		:: txn[i].epoch == e && txn[i].state == COMMITTED
		:: else ->	/* PRODUCER_FENCED, INVALID_TXN_STATE */
			is_refused = true
		fi
	}
}

/* EndTxn with ABORT. */
inline abort(i, e)
{
	atomic {
#ifdef M_ABORT_BY_INIT
		init_producer_id(i)
#else
		if
		:: txn[i].epoch == e && txn[i].state == OPEN ->
			for (k : 0 .. B * T - 1) {
				txn[i].rows[k] = 0
			}
			k = 0;
			txn[i].state = ABORTED
		:: else		/* ended, or in other hands */
		fi
#endif
	}
}

inline list_open()
{
	do
	:: atomic { i < I -> listed[i] = (txn[i].state == OPEN -> txn[i].epoch : NONE); i++ }
	:: atomic { i == I -> i = 0; break }
	od
}

inline write_plan()
{
	atomic {
		if
		:: my_epoch != driver_epoch -> goto fenced
		:: else -> plans++; plan = plans
		fi
	}
}

inline decide()
{
	atomic {
		if
#ifndef M_NO_FENCE
		:: my_epoch != driver_epoch -> goto fenced
#endif
		:: else ->
#ifndef M_NO_FENCE
			driver_epoch++;		/* by EndTxn, in transactions version 2 */
			my_epoch = driver_epoch;
#endif
			decided = batch + 1;
			decided_in = plan;
			for (t : 0 .. T - 1) {
				decision[t].id = found[t].id;
				decision[t].epoch = found[t].epoch
			}
			t = 0
		fi
	}
}

inline end_found()
{
	for (t : 0 .. T - 1) {
		i = found[t].id;
		e = found[t].epoch;
		commit(i, e);
		atomic {
			if
			:: !is_refused
			:: is_refused && my_epoch != driver_epoch -> goto fenced
			:: is_refused && my_epoch == driver_epoch ->
				/* It has expired; or its id was reused, which must not be. */
				assert(TIMEOUTS > timeouts);
				alarm = true;
				is_refused = false
			fi
		}
	}
	t = 0;
	i = 0;
	e = 0
}

inline abort_listed()
{
	do
	:: atomic { i < I && listed[i] != NONE -> e = listed[i]; abort(i, e); listed[i] = NONE; e = 0; i++ }
	:: atomic { i < I && listed[i] == NONE -> i++ }
	:: atomic { i == I -> i = 0; break }
	od
}

/* What is open and not decided: of attempts that were overtaken. */
inline list_overtaken()
{
	list_open();
	atomic {
		for (t : 0 .. T - 1) {
			listed[found[t].id] = NONE
		}
		t = 0;
		if
#ifndef M_ABORT_NEWER
		:: my_epoch != driver_epoch ->
			for (i : 0 .. I - 1) {
				listed[i] = NONE
			}
			i = 0
#endif
		:: else
		fi
	}
}

proctype driver(byte me)
{
	byte my_epoch, plan, batch, seen, t, i, e, k;
	bool is_refused, is_ended, has_epoch;
	byte listed[I];
	Result found[T];
	do
	:: done == B -> break
	:: atomic { done < B -> batch = done };
		atomic {
			if
#ifndef M_NO_FENCE
			:: has_epoch && my_epoch != driver_epoch -> goto fenced	/* a newer driver has come */
#endif
			:: else -> driver_epoch++; my_epoch = driver_epoch; has_epoch = true
			fi
		}
		atomic {
			seen = decided;
			/* A plan behind the decision says that all of it was ended. */
			is_ended = plans > decided_in;
			for (t : 0 .. T - 1) {
				found[t].id = decision[t].id;
				found[t].epoch = decision[t].epoch
			}
			t = 0
		}
#ifndef M_NO_END_FIRST
		if
		:: seen > 0 && !is_ended -> end_found()
		:: else
		fi;
#endif
#ifdef M_LIST_AFTER_PLAN
		write_plan();
		list_open();
#else
		list_open();
		write_plan();
#endif
		abort_listed();
#ifdef M_NO_END_FIRST
		if
		:: seen > 0 && !is_ended -> end_found()
		:: else
		fi;
#endif
		if
		:: seen > batch		/* decided already: nothing is written again */
		:: else ->
			atomic {
				for (t : 0 .. T - 1) {
					results[me].task[t].id = NONE
				}
				t = 0;
				batch_of[me] = batch;
				epoch_of[me] = my_epoch;
				planned[me] = plan
			}
			/* Spark waits for a result of each task. */
end_waits:
			do
			:: t < T && results[me].task[t].id != NONE -> t++
			:: t == T -> t = 0; break
			od;
			atomic {
				for (t : 0 .. T - 1) {
					found[t].id = results[me].task[t].id;
					found[t].epoch = results[me].task[t].epoch
				}
				t = 0;
				planned[me] = 0
			}
#ifdef M_END_FIRST
			end_found();
			decide()
#else
#ifdef M_LIST_BEFORE_DECISION
			list_overtaken();
			decide();
#else
			decide();
#endif
			end_found();
#ifndef M_LIST_BEFORE_DECISION
			list_overtaken();
#endif
			abort_listed()
#endif
		fi;
		atomic {
			if
			:: done == batch -> done = batch + 1
			:: else		/* another driver was faster */
			fi;
			for (t : 0 .. T - 1) {
				assert(visible[TASK(batch, t)] == ROWS || alarm)
			}
			t = 0
		}
	od;
fenced:
	planned[me] = 0
}

/* One write, acknowledged. The slab looks at the generation, the broker at the lane's epoch. */
inline write()
{
	atomic {
		if
#ifndef M_OLD_GENERATION
		:: lane[id].generation != generation -> goto refused
		:: lane[id].generation == generation && txn[id].epoch != epoch -> goto refused	/* it timed out */
#endif
		:: else ->
			txn[id].rows[TASK(batch, number)]++;
			txn[id].state = OPEN
		fi
	}
}

proctype attempt(byte me)
{
	byte at, plan, batch, number, id, generation, epoch, leader, k;
end_again:
	atomic {
		if
		:: attempts > 0 && planned[0] > 0 -> at = 0
#if D > 1
		:: attempts > 0 && planned[1] > 0 -> at = 1
#endif
		fi;
		attempts--;
		plan = planned[at];
		batch = batch_of[at];
		leader = epoch_of[at];
		select (number : 0 .. T - 1)
	}
	atomic {
		/* The sender gives it a lane that is free. */
#ifdef M_ID_OF_TASK
		id = number;
		lane[id].generation++
#else
		do
		:: id == I -> id = 0; goto next
		:: id < I && MAY_LEASE(id) -> break
		:: id < I && !MAY_LEASE(id) -> id++
		od;
		lane[id].generation++;
		lane[id].holder = me;
		lane[id].plan = plan;
#endif
		generation = lane[id].generation;
		init_producer_id(id);
		epoch = txn[id].epoch
	}
	write();
	write();
#ifndef M_NEVER_ASKS
	if
	:: driver_epoch != leader ->
		abort(id, epoch);
		atomic {
			if
			:: lane[id].generation == generation -> lane[id].holder = 0
			:: else
			fi;
			goto next
		}
	:: else
	fi;
#endif
	atomic {
		/* All is acknowledged: the lane is free again, and the transaction belongs to the result. */
		if
#ifndef M_OLD_GENERATION
		:: lane[id].generation != generation -> goto refused
#endif
		:: else ->
			if
			:: lane[id].generation == generation -> lane[id].holder = 0
			:: else
			fi
		fi
	}
	atomic {
		if
		:: planned[at] == plan && results[at].task[number].id == NONE ->
			results[at].task[number].id = id;
			results[at].task[number].epoch = epoch
		:: else		/* another attempt was faster, or the driver is gone */
		fi
	}
	goto next;
refused:
	skip;
next:
	atomic { at = 0; plan = 0; batch = 0; number = 0; id = 0; generation = 0; epoch = 0; leader = 0; goto end_again }
}

/* An attempt is given up for dead, rightly or not, and its lane is taken from it. */
proctype housekeeping()
{
	byte i;
end:	do
	:: atomic {
		revokes > 0;
		select (i : 0 .. I - 1);
		if
		:: lane[i].holder != 0 -> revokes--; lane[i].holder = 0; lane[i].generation++; i = 0
		:: else -> i = 0
		fi
	}
	od
}

proctype coordinator()
{
	byte i, k;
end:	do
	:: atomic {
		timeouts > 0;
		select (i : 0 .. I - 1);
		if
		:: txn[i].state == OPEN -> timeouts--; init_producer_id(i); txn[i].state = ABORTED; i = 0
		:: else -> i = 0
		fi
	}
	od
}

#ifdef LEFT
proctype last()
{
	byte i;
end:	timeout;
	for (i : 0 .. I - 1) {
		assert(done < B || txn[i].state != OPEN)
	}
}
#endif

init {
	byte n;
	atomic {
		for (n : 0 .. D - 1) {
			run driver(n)
		}
		for (n : 1 .. A) {
			run attempt(n)
		}
#if REVOKES > 0
		run housekeeping();
#endif
#if TIMEOUTS > 0
		run coordinator();
#endif
#ifdef LEFT
		run last();
#endif
		n = 0
	}
}
