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
 * - fence: orders stores before it against loads behind it, which release and acquire do not. A process that stores
 *   work and then reads whether the other side sleeps needs it, as does the other side in reverse. Without it, both can
 *   read the old value: the wake-up is lost.
 */
#ifndef SHMACCUM_ATOMICS_H
#define SHMACCUM_ATOMICS_H

#include <stdint.h>

typedef struct {
    uint64_t value;
} word;

_Static_assert(sizeof(word) == 8, "a word has 8 bytes");
_Static_assert(__atomic_always_lock_free(sizeof(word), 0), "this machine has no atomic access to 8 bytes");

static inline uint64_t load_relaxed(const word *at) {
    return __atomic_load_n(&at->value, __ATOMIC_RELAXED);
}

static inline uint64_t load_acquire(const word *at) {
    return __atomic_load_n(&at->value, __ATOMIC_ACQUIRE);
}

static inline void store_relaxed(word *at, uint64_t value) {
    __atomic_store_n(&at->value, value, __ATOMIC_RELAXED);
}

static inline void store_release(word *at, uint64_t value) {
    __atomic_store_n(&at->value, value, __ATOMIC_RELEASE);
}

/* Returns whether the word was `expected`, and now is `desired`. */
static inline int compare_and_swap(word *at, uint64_t expected, uint64_t desired) {
    return __atomic_compare_exchange_n(&at->value, &expected, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Returns the sum. */
static inline uint64_t add(word *at, uint64_t count) {
    return __atomic_add_fetch(&at->value, count, __ATOMIC_RELAXED);
}

static inline void fence(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif
