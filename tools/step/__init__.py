"""Tests every crash point: kills or stops each operation one step later each time.

A *step* is a machine instruction that stores to the slab's words or its semaphores, in the shipped core or elsewhere
(`tools.step.stores`), or a bytecode instruction of the package that can change anything outside its own frame,
such as files (`tools.step.steps`). A death before any other instruction equals a death before the next step. For
each step of each operation, one process, the *victim*, runs the operation and is killed by SIGKILL just before that
step. Another, the *survivor*, then checks the remains:

1. It takes over the victim's locks and checks the whole slab (`tools.step.checker`).
2. It runs every operation: append, deliver through a sender, fill the memory to the last slot, leave.
3. It compares the log, as kafka-python reads it, with the appended records. The log must hold the records that the
   victim knew to be accepted. Of its last call it can also hold the first ones. Each is there once, in order, whole.

With ``--stop`` the victim is stopped before a store while the survivor works (`tools.step.aftermath`), then goes on
to its end. With ``--pairs`` it is killed or stopped there, a second victim is killed at a store of the same operation,
and the first one goes on. Then come the same checks.

Each point has a slab of its own. Victim and survivor are forked from one process that has imported everything, so
hundreds of points take seconds.
"""
