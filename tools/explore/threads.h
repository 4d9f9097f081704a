/* The scenarios with real threads in place of coroutines: one schedule a run, with ThreadSanitizer.
 *
 * It has what `engine.h` has for scenarios. The words are accessed as in the package, so the sanitizer sees which loads
 * and stores order plain accesses, whatever this machine does: a release or acquire that is missing is a data race. No
 * process dies, and no store waits but in the processor. */
#include "atomics.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { SHARED, ALONE, FOREIGN };

static __thread int current = -1;
static const char *violation;

static struct {
    uint64_t states, transitions, ends;
    int deepest;
    char *trace;
} world = {.trace = ""};

static int explore_current(void) { return current; }
static int explore_looks(void) { return 0; }
static int explore_has_deaths(void) { return 0; }
static int explore_has_buffers(void) { return 0; }
static int explore_is_dead(int number) { return 0; }
static void explore_step(void) { sched_yield(); }

static int explore_choose(void)
{
    static uint64_t asked;
    return (int)(__atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED) * 0x9E3779B97F4A7C15ULL >> 63);
}

/* These order nothing, as what a scenario notes is not part of the protocol. */

static uint64_t explore_peek(const void *at) { return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED); }
static void explore_note(void *at, uint64_t value) { __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELAXED); }

static void explore_await(const void *word, uint64_t value, int looks)
{
    while (explore_peek(word) == value)
        sched_yield();
}

static void explore_assert(int holds, const char *what)
{
    const char *none = NULL; /* the first one counts */
    if (!holds)
        __atomic_compare_exchange_n(&violation, &none, what, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static struct {
    pthread_barrier_t all;
    void (*run)(int);
} start;

static void *run_one(void *number)
{
    current = (int)(intptr_t)number;
    pthread_barrier_wait(&start.all);
    start.run(current);
    return NULL;
}

static const char *explore(int processes, int deaths, char *shared, uint64_t size, void (*body)(int),
                           const char *(*check)(int), int (*reach)(const void *, int, int), int has_buffers)
{
    pthread_t threads[8];
    violation = NULL;
    start.run = body;
    pthread_barrier_init(&start.all, NULL, processes);
    for (int each = 0; each < processes; each++)
        pthread_create(&threads[each], NULL, run_one, (void *)(intptr_t)each);
    for (int each = 0; each < processes; each++)
        pthread_join(threads[each], NULL);
    pthread_barrier_destroy(&start.all);
    const char *wrong = check(1);
    return wrong ? wrong : violation;
}
