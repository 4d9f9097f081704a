/* Loads and stores of the slab's words, with their memory order in the name: the only C of the core.
 *
 * Processes share the words without a common lock for all of them, so each access is one atomic instruction that the
 * compiler neither splits, merges nor repeats. `word` is a struct, so plain arithmetic on one does not compile.
 *
 * - store_release / load_acquire: who reads the value also sees what its writer stored before. The commit word of a
 *   batch is stored so after its record. On x86-64 these are plain moves.
 * - store_relaxed / load_relaxed: the value alone, where a lock or a later release store orders the rest.
 * - compare_and_swap: acquires what the word's last writer released, and releases what this thread stored before.
 * - add: for counters with several writers. No other word is ordered by it.
 * - relax: tells the processor that this loop waits for another one's store.
 * - copy_bytes: of a record, which no other process reads before the release that follows.
 * - fence: orders stores before it against loads behind it, which release and acquire do not. A process that stores
 *   work and then reads whether the other side sleeps needs it, as does the other side in reverse. Without it, both can
 *   read the old value: the wake-up is lost.
 *
 * With SHMACCUM_STEPS, each access is a step: shmaccum_steps_left counts down. Before the access at which it becomes 0,
 * the slab's memory is copied, which is what a death there leaves; without a place for the copy the process gets a
 * signal: it dies, or is stopped. With SHMACCUM_EXPLORE, the explorer does each access (`tools/explore`). The package
 * is never built so.
 */
#ifndef SHMACCUM_ATOMICS_H
#define SHMACCUM_ATOMICS_H

#include <stdint.h>
#include <string.h>

#ifdef SHMACCUM_STEPS
#include <signal.h>
uint64_t shmaccum_steps_left, shmaccum_steps_size;
void *shmaccum_steps_slab, *shmaccum_steps_copy;
int shmaccum_steps_signal = SIGKILL;
static void last_step(void) {
    if (shmaccum_steps_copy)
        memcpy(shmaccum_steps_copy, shmaccum_steps_slab, shmaccum_steps_size);
    else
        raise(shmaccum_steps_signal);
}
static inline void step(void) {
    if (shmaccum_steps_left && !--shmaccum_steps_left) last_step();
}
#else
static inline void step(void) {}
#endif

typedef struct {
    uint64_t value;
} word;

_Static_assert(sizeof(word) == 8, "a word has 8 bytes");
_Static_assert(__atomic_always_lock_free(sizeof(word), 0), "this machine has no atomic access to 8 bytes");

#ifdef SHMACCUM_EXPLORE
uint64_t explore_load(const word *at);
void explore_store(word *at, uint64_t value);
int explore_swap(word *at, uint64_t expected, uint64_t desired);
uint64_t explore_add(word *at, uint64_t count);
void explore_copy(void *to, const void *from, uint64_t size);
void explore_fence(void);
#define load_relaxed explore_load
#define load_acquire explore_load
#define store_relaxed explore_store
#define store_release explore_store
#define compare_and_swap explore_swap
#define add explore_add
#define copy_bytes explore_copy
#define fence explore_fence
#else

static inline uint64_t load_relaxed(const word *at) {
    step();
    return __atomic_load_n(&at->value, __ATOMIC_RELAXED);
}

static inline uint64_t load_acquire(const word *at) {
    step();
    return __atomic_load_n(&at->value, __ATOMIC_ACQUIRE);
}

static inline void store_relaxed(word *at, uint64_t value) {
    step();
    __atomic_store_n(&at->value, value, __ATOMIC_RELAXED);
}

static inline void store_release(word *at, uint64_t value) {
    step();
    __atomic_store_n(&at->value, value, __ATOMIC_RELEASE);
}

/* Returns whether the word was `expected`, and now is `desired`. */
static inline int compare_and_swap(word *at, uint64_t expected, uint64_t desired) {
    step();
    return __atomic_compare_exchange_n(&at->value, &expected, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Returns the sum. */
static inline uint64_t add(word *at, uint64_t count) {
    step();
    return __atomic_add_fetch(&at->value, count, __ATOMIC_RELAXED);
}

static inline void copy_bytes(void *to, const void *from, uint64_t size) {
    step();
    memcpy(to, from, size);
}

static inline void fence(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
