/* Stops this process at a store into shared memory, whatever code makes it: the shipped core, glibc, the interpreter.

   The mappings are read-only. A store faults; its handler counts it, opens the mapping and has the processor trap after
   the one instruction; that handler closes the mapping. At the store that was asked for, the first handler kills or
   stops the process: what is there are the stores before it. One thread, x86-64. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ucontext.h>
#include <unistd.h>

#define MOST 64
#define TRAP_FLAG 0x100
#define REPEAT 0xF3 /* the prefix of an instruction that traps at each of its bytes */

static struct {
    char *begin;
    size_t size;
    int number, is_open;
} mappings[MOST];
static int count_of_mappings;
static int account, end;
static volatile uint64_t *steps; /* so far, and the one to end at */
static uint64_t last;

static void on_store(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint64_t instruction = (uint64_t)registers[REG_RIP];
    char *at = info->si_addr;
    for (int each = 0; each < count_of_mappings; each++) {
        if (at < mappings[each].begin || at >= mappings[each].begin + mappings[each].size)
            continue;
        if (instruction != last || *(uint8_t *)instruction != REPEAT) {
            if (steps[0] == steps[1]) {
                dprintf(account, "{\"pid\": %d, \"steps\": %lu, \"place\": \"store %d %ld\"}\n", getpid(),
                        (unsigned long)steps[0], mappings[each].number, (long)(at - mappings[each].begin));
                kill(getpid(), end);
            }
            steps[0]++;
        }
        last = instruction;
        if (mprotect(mappings[each].begin, mappings[each].size, PROT_READ | PROT_WRITE))
            break;
        mappings[each].is_open = 1;
        registers[REG_EFL] |= TRAP_FLAG;
        return;
    }
    signal(SIGSEGV, SIG_DFL);
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    for (int each = 0; each < count_of_mappings; each++)
        if (mappings[each].is_open) {
            mappings[each].is_open = 0;
            mprotect(mappings[each].begin, mappings[each].size, PROT_READ);
        }
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

/* Begin: `counts` has the steps so far and the step to end at, by a signal; the account gets the place. */
void stores_begin(volatile uint64_t *counts, int descriptor, int by)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    steps = counts;
    account = descriptor;
    end = by;
    action.sa_sigaction = on_store;
    sigaction(SIGSEGV, &action, NULL);
    action.sa_sigaction = on_trap;
    sigaction(SIGTRAP, &action, NULL);
}

/* Forget all mappings: some can be gone. */
void stores_forget(void) { count_of_mappings = 0; }

/* Watch a mapping; its number names it in the account. Return whether there is room for it. */
int stores_watch(char *begin, size_t size, int number)
{
    if (count_of_mappings == MOST)
        return 0;
    mappings[count_of_mappings].begin = begin;
    mappings[count_of_mappings].size = size;
    mappings[count_of_mappings].number = number;
    mappings[count_of_mappings].is_open = 0;
    count_of_mappings++;
    return mprotect(begin, size, PROT_READ) == 0;
}
