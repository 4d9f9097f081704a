/* Counts the instructions that this thread executes between two calls: the processor traps after each. x86-64.

   An instruction with a repeat prefix traps after each repetition, and counts once. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ucontext.h>

#define TRAP_FLAG "0x100"

static uint64_t instructions, last;

static void on_trap(int number, siginfo_t *info, void *context)
{
    uint64_t next = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    instructions += next != last;
    last = next;
}

void counter_begin(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_trap;
    sigaction(SIGTRAP, &action, NULL);
    instructions = 0;
    __asm__ volatile("pushfq\n\torq $" TRAP_FLAG ", (%%rsp)\n\tpopfq" ::: "memory", "cc");
}

uint64_t counter_end(void)
{
    __asm__ volatile("pushfq\n\tandq $~" TRAP_FLAG ", (%%rsp)\n\tpopfq" ::: "memory", "cc");
    return instructions;
}
