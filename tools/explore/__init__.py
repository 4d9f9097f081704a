"""Explores every schedule of small scenarios of the core: lock, pool, batches and their numbers.

The very functions of ``shmaccum/core/`` are compiled so that the explorer does each access to a shared word. A process
of a scenario is a coroutine; before an access it yields, and the explorer chooses which one runs next, or dies there.
It walks all choices, depth first, and takes no state twice: a state is the shared memory and what each process has on
its stack. With store buffers, an access is also delayed as on x86-64. What other machines reorder is not walked.

What the world does, a broker or a clock, is a choice, too. An access that no other process can see or change is none. A
scenario says which ones these are, by the state of a slot and the holder of a lock; a store to what another process
owns is a violation, so this is checked, too.

* ``engine.h``: coroutines, states, the walk. ``threads.h``: real threads in their place, for ThreadSanitizer.
* ``memory.pxi``, ``batches.pxi``, ``lanes.pxi``, ``expiry.pxi``, ``numbering.pxi``: the scenarios.
* ``mutants.py``: which ones must hold, and changes of the core that must be found.

``python -m tools.explore`` runs all scenarios. ``--mutants`` changes the core, one place at a time, and fails unless
each change is found. ``--threads`` looks for data races instead. It needs x86-64 and a C compiler.
"""
