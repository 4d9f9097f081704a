"""Every crash point: each operation is run over and over, and killed one step later each time.

A *step* is a bytecode instruction of the package that may change anything outside of its own frame: memory that
processes share, files, semaphores. To die before an instruction that cannot (a jump, a load) is to die before the next
one that can. For each step of each operation one process, the *victim*, runs the operation and is killed by SIGKILL
just before that step; another, the *survivor*, then looks at what is left:

1. It takes over what the dead one held, and walks the whole slab (`tools.crashpoints.checker`).
2. It does every operation at once: append, deliver through a sender, fill the memory to the last slot, leave.
3. It compares the log, as kafka-python reads it, with what was appended: exactly the records that the victim knew to be
   in and, of those that it was about to append, the first ones or none; each once, in order, and whole.

Each point has a slab of its own, a victim and a survivor that are forked from one process with everything imported:
hundreds of points take seconds.
"""
