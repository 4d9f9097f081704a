/* The explorer's engine: processes as coroutines, all their schedules and deaths, depth first. x86-64.
 *
 * Each process has a stack of its own; what it knows is on it. Shared memory is one block. A state is saved and
 * restored by copying both, so a choice can be taken back. Nothing here is locked: one thread runs all.
 *
 * With store buffers, a process's stores wait in a buffer of its own, as those of an x86-64 processor do: it sees them
 * at once, the others when they reach memory, in their order. */
#include "atomics.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PROCESSES 4
#define STACK_SIZE (32 << 10)
#define MOST_SLICES 4 /* within which what a death left is found */
#define MOST_DEPTH (1 << 20)
#define MOST_BUFFERED 3 /* stores of a process that have not reached memory */

enum { READY, DONE, DEAD };
enum { SHARED, ALONE, FOREIGN }; /* a load or store: see `world.reach` */

typedef struct {
    uint64_t *at, value;
} Store;

typedef struct {
    char *sp;
    int status;
    const uint64_t *awaited; /* it waits while this has the value */
    uint64_t value;
    int looks_seen;
    const void *next; /* what it accesses when it goes on; NULL if it does not access shared memory */
    int stores;       /* whether it changes that */
    int reach;        /* of that access */
    int asks, answer; /* whether it waits for what the world does, and what that is */
    int buffered;
    Store buffer[MOST_BUFFERED]; /* the oldest first */
} Process;

static struct {
    int processes, deaths_left, slices_left, looks, current; /* `looks` is raised when all who wait look again */
    const char *violation;
    Process process[MOST_PROCESSES];
} engine = {.current = -1}; /* no process runs: the scheduler does */

static struct {
    char *shared, *stacks;
    uint64_t size;
    void (*run)(int);
    /* Whose a word is, as things are. ALONE: a load or store by this process has no effect on what others do, since no
     * other one stores to the word nor, for a store, loads it. FOREIGN: only others may store to it. */
    int (*reach)(const void *at, int number, int stores);
    int has_buffers;
    const char *(*check)(int is_over); /* what is wrong, NULL if nothing */
    char *scheduler;
    char trace[MOST_DEPTH + 1];
    uint64_t *seen, seen_size, states, transitions, ends;
    int deepest;
} world;

/* Save the registers that a call keeps, and the stack in `*from`; go on where `to` was saved. */
void explore_switch(char **from, char *to);
__asm__(".text\n"
        "explore_switch:\n"
        "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rsp, (%rdi); mov %rsi, %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret\n");

static void yield_now(void)
{
    explore_switch(&engine.process[engine.current].sp, world.scheduler);
}

static int is_shared(const void *at) { return (char *)at >= world.shared && (char *)at < world.shared + world.size; }

/* Note that something is wrong, if it is. */
static void explore_assert(int holds, const char *what)
{
    if (!holds && !engine.violation)
        engine.violation = what;
}

/* Let another process run, or this one die, before an access to a word. What this does is done by the scheduler, on its
 * own stack: what it left on this one would make states differ that are the same. */
static void pause_before(const void *at, int stores)
{
    if (engine.current < 0 || !is_shared(at))
        return;
    engine.process[engine.current].next = at;
    engine.process[engine.current].stores = stores;
    yield_now();
    engine.process[engine.current].next = NULL;
}

/* Let the oldest store of a process reach memory. */
static void drain_one(Process *of)
{
    *of->buffer[0].at = of->buffer[0].value;
    of->buffered--;
    memmove(of->buffer, of->buffer + 1, of->buffered * sizeof(Store));
    memset(of->buffer + of->buffered, 0, sizeof(Store));
}

static void drain_all(Process *of)
{
    while (of->buffered)
        drain_one(of);
}

/* Return a process's last store to a word if it has not reached memory, else NULL. */
static const Store *is_buffered(const Process *of, const word *at)
{
    for (int each = of->buffered - 1; each >= 0; each--)
        if (of->buffer[each].at == &at->value)
            return &of->buffer[each];
    return NULL;
}

/* What atomics.h does with shared words. */

uint64_t explore_load(const word *at)
{
    pause_before(at, 0);
    if (engine.current >= 0) {
        const Store *store = is_buffered(&engine.process[engine.current], at);
        if (store)
            return store->value;
    }
    return at->value;
}

void explore_store(word *at, uint64_t value)
{
    pause_before(at, 1);
    Process *me = engine.current >= 0 ? &engine.process[engine.current] : NULL;
    if (me && world.has_buffers && is_shared(at) && (me->reach != ALONE || is_buffered(me, at))) {
        if (me->buffered == MOST_BUFFERED)
            drain_one(me);
        me->buffer[me->buffered++] = (Store){&at->value, value};
    } else
        at->value = value;
}

/* These reach memory at once, after all earlier stores. */

void explore_fence(void)
{
    if (engine.current >= 0)
        drain_all(&engine.process[engine.current]);
}

int explore_swap(word *at, uint64_t expected, uint64_t desired)
{
    pause_before(at, 1);
    explore_fence();
    if (at->value != expected)
        return 0;
    at->value = desired;
    return 1;
}

uint64_t explore_add(word *at, uint64_t count)
{
    pause_before(at, 1);
    explore_fence();
    return at->value += count;
}

void explore_copy(void *to, const void *from, uint64_t size)
{
    pause_before(to, 1);
    explore_fence();
    memcpy(to, from, size);
}

/* Return what the world does, 0 or 1: both are walked. In the end it is 0. */
static int explore_choose(void)
{
    if (engine.current < 0)
        return 0;
    engine.process[engine.current].asks = 1;
    yield_now();
    engine.process[engine.current].asks = 0;
    return engine.process[engine.current].answer;
}

/* Let another process run. */
static void explore_step(void)
{
    if (engine.current >= 0)
        yield_now();
}

/* A number that grows with each death, and each slice of time. */
static int explore_looks(void) { return engine.looks; }

/* Wait while a word has a value, and `looks` does not grow. A real process waits for a slice of time, and then looks
 * what a death has left. Without a death no process may need that. */
static void explore_await(const void *word, uint64_t value, int looks)
{
    Process *me = &engine.process[engine.current];
    me->awaited = word;
    me->value = value;
    me->looks_seen = looks;
    yield_now();
    me->awaited = NULL;
}

static int explore_current(void) { return engine.current; }

/* Read a word of shared memory for the explorer's own purposes: no other process comes in between. */
static uint64_t explore_peek(const void *word)
{
    uint64_t value;
    memcpy(&value, word, sizeof(value));
    return value;
}

/* Store to one, likewise. */
static void explore_note(void *word, uint64_t value) { memcpy(word, &value, sizeof(value)); }

/* Whether a process has died, or can. */
static int explore_has_deaths(void) { return engine.deaths_left || engine.looks; }

static int explore_has_buffers(void) { return world.has_buffers; }

static int explore_is_dead(int number) { return engine.process[number].status == DEAD; }

static char *top_of(int number) { return world.stacks + (number + 1) * STACK_SIZE - 64; }

static void first_step(void)
{
    world.run(engine.current);
    explore_fence();
    engine.process[engine.current].status = DONE;
    yield_now();
}

static int can_run(int number)
{
    const Process *of = &engine.process[number];
    return of->status == READY && (!of->awaited || *of->awaited != of->value || of->looks_seen != engine.looks);
}

/* A process whose next access no other one can see or change, or that asks what the world does; -1 if none. The order of
 * that and of what others do has no effect, so it alone is run. */
static int alone(void)
{
    for (int each = 0; each < engine.processes; each++)
        if (can_run(each) && (engine.process[each].asks ||
                              (engine.process[each].next && world.reach(engine.process[each].next, each,
                                                                        engine.process[each].stores) == ALONE)))
            return each;
    return -1;
}

/* Run one process up to its next access that another process can see or change, or before which it can die. */
static void run(int number, int answer)
{
    Process *of = &engine.process[number];
    of->answer = answer;
    do {
        of->reach = of->next ? world.reach(of->next, number, of->stores) : SHARED;
        explore_assert(of->reach != FOREIGN || !of->stores, "a process changes what is another's");
        engine.current = number;
        explore_switch(&world.scheduler, of->sp);
        engine.current = -1;
    } while (of->next && !engine.deaths_left && world.reach(of->next, number, of->stores) == ALONE);
}

static uint64_t image_size(void)
{
    uint64_t size = sizeof(engine) + world.size;
    for (int each = 0; each < engine.processes; each++)
        if (engine.process[each].status == READY)
            size += (uint64_t)(top_of(each) - engine.process[each].sp);
    return size;
}

static char *save(void)
{
    char *image = malloc(image_size()), *at = image;
    memcpy(at, &engine, sizeof(engine));
    at += sizeof(engine);
    memcpy(at, world.shared, world.size);
    at += world.size;
    for (int each = 0; each < engine.processes; each++)
        if (engine.process[each].status == READY) {
            uint64_t size = (uint64_t)(top_of(each) - engine.process[each].sp);
            memcpy(at, engine.process[each].sp, size);
            at += size;
        }
    return image;
}

static void restore(const char *image)
{
    memcpy(&engine, image, sizeof(engine));
    image += sizeof(engine);
    memcpy(world.shared, image, world.size);
    image += world.size;
    for (int each = 0; each < engine.processes; each++)
        if (engine.process[each].status == READY) {
            uint64_t size = (uint64_t)(top_of(each) - engine.process[each].sp);
            memcpy(engine.process[each].sp, image, size);
            image += size;
        }
}

static uint64_t mix(uint64_t hash, const void *from, uint64_t size)
{
    const char *at = from;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t bits;
        memcpy(&bits, at, 8);
        hash = (hash ^ bits) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 29;
    }
    return hash;
}

static uint64_t hash_of_state(void)
{
    uint64_t hash = mix(1, world.shared, world.size);
    hash = mix(hash, &engine.deaths_left, 16); /* and the slices and looks */
    for (int each = 0; each < engine.processes; each++) {
        Process *of = &engine.process[each];
        uint64_t known[3] = {(uint64_t)of->status, (uint64_t)of->awaited, of->value};
        hash = mix(hash, known, sizeof(known));
        hash = mix(hash, of->buffer, of->buffered * sizeof(Store));
        if (of->status == READY)
            hash = mix(hash, of->sp, (uint64_t)(top_of(each) - of->sp));
    }
    return hash ? hash : 1;
}

/* Note a state; return whether it is new. */
static int is_new(uint64_t hash)
{
    if (world.states * 2 >= world.seen_size) {
        uint64_t *old = world.seen, size = world.seen_size;
        world.seen_size = size ? size * 2 : 1 << 16;
        world.seen = calloc(world.seen_size, 8);
        for (uint64_t each = 0; each < size; each++)
            if (old[each]) {
                uint64_t at = old[each] & (world.seen_size - 1);
                while (world.seen[at])
                    at = (at + 1) & (world.seen_size - 1);
                world.seen[at] = old[each];
            }
        free(old);
    }
    uint64_t at = hash & (world.seen_size - 1);
    while (world.seen[at]) {
        if (world.seen[at] == hash)
            return 0;
        at = (at + 1) & (world.seen_size - 1);
    }
    world.seen[at] = hash;
    world.states++;
    return 1;
}

/* Look at a new state; return whether processes can go on from it. */
static int goes_on(void)
{
    int ready = 0, waiting = 0;
    for (int each = 0; each < engine.processes; each++) {
        ready += can_run(each) || engine.process[each].buffered;
        waiting += engine.process[each].status == READY && !can_run(each);
    }
    if (!engine.violation) {
        const char *wrong = world.check(!ready && !waiting);
        engine.violation = wrong ? wrong : engine.violation;
    }
    if (!engine.violation && !ready && waiting) {
        if (engine.looks && engine.slices_left) {
            engine.slices_left--;
            engine.looks++;
            return 1;
        }
        engine.violation = "a process waits for ever";
    }
    world.ends += !ready;
    return ready > 0;
}

/* Walk all schedules; return what is wrong, NULL if nothing. The trace is the choices up to there: `0` runs process 0,
 * `a` kills it, `A` lets its oldest store reach memory, `p` runs it with 1 for an answer. */
static const char *explore(int processes, int deaths, char *shared, uint64_t size, void (*body)(int),
                           const char *(*check)(int), int (*reach)(const void *, int, int), int has_buffers)
{
    struct { char *image; int next; } *path = calloc(MOST_DEPTH, sizeof(*path));
    int depth = 1;
    const char *violation = NULL;
    memset(&engine, 0, sizeof(engine));
    memset(&world, 0, sizeof(world));
    engine.processes = processes;
    engine.deaths_left = deaths;
    engine.current = -1;
    world.shared = shared;
    world.size = size;
    world.run = body;
    world.check = check;
    world.reach = reach;
    world.has_buffers = has_buffers;
    world.stacks = calloc(processes, STACK_SIZE);
    for (int each = 0; each < processes; each++) {
        char **sp = (char **)(top_of(each) - 64);
        sp[6] = (char *)first_step; /* behind the six registers */
        engine.process[each].sp = (char *)sp;
    }
    path[0].image = save();
    while (depth && !violation) {
        int action = path[depth - 1].next++;
        if (action == 4 * processes) {
            free(path[--depth].image);
            continue;
        }
        restore(path[depth - 1].image);
        int number = action % processes, kind = action / processes;
        int only = alone();
        if (only >= 0 && number != only)
            continue;
        if (kind == 0 || kind == 3) {
            if (!can_run(number) || (kind == 3 && !engine.process[number].asks))
                continue;
            run(number, kind == 3);
        } else if (kind == 1) {
            if (!engine.deaths_left || engine.process[number].status != READY)
                continue;
            drain_all(&engine.process[number]); /* what was executed is not lost */
            engine.process[number].status = DEAD;
            engine.deaths_left--;
            engine.looks++;
            engine.slices_left = MOST_SLICES;
        } else {
            if (!engine.process[number].buffered)
                continue;
            drain_one(&engine.process[number]);
        }
        world.transitions++;
        world.trace[depth - 1] = (char)("0aAp"[kind] + number);
        if (!is_new(hash_of_state()) && !engine.violation)
            continue;
        int more = goes_on();
        violation = engine.violation;
        if (depth == MOST_DEPTH)
            violation = "a schedule is longer than the explorer's path: a loop?";
        if (!violation && more) {
            path[depth].next = 0;
            path[depth++].image = save();
            if (depth > world.deepest)
                world.deepest = depth;
        }
    }
    if (!violation && !world.ends)
        violation = "no schedule ends";
    world.trace[violation ? depth : 0] = 0;
    while (depth > 0)
        free(path[--depth].image);
    free(path);
    free(world.stacks);
    free(world.seen);
    return violation;
}
