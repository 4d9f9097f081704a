"""Explores every schedule of small scenarios of the core: lock, pool and waiters.

The very functions of ``shmaccum/core/`` are compiled with a hook at each access to a shared word. A process of a
scenario is a coroutine; at the hook it yields, and the explorer chooses which one runs next, or dies there. It walks
all choices, depth first, and takes no state twice: a state is the shared memory and what each process has on its stack.
So all interleavings of whole accesses are walked, in the order of the program. Stores that other processors see later
are not part of it: the fences of the core are about these.

While a process has the lock that guards all else, no other process takes a step, since none could have an effect. The
scenario of the lock itself is explored without that.

``python -m tools.explore`` runs all scenarios. ``--mutants`` changes the core, one place at a time, and fails unless
each change is found. It needs x86-64 and a C compiler.
"""
