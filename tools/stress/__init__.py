"""Kills producers and senders at random under load, and accounts for every record.

Real producer processes append numbered records, by `send` and by `send_batch`, to several partitions of two topics. The
slab is so small that they wait for memory all the time. A plan made from the seed determines which process is killed
(SIGKILL) or stopped for a while (SIGSTOP, SIGCONT), and when. The tool replaces a killed producer, producers replace
a killed sender, as in production. At the end the remaining producers flush and close, the sender delivers the records
of dead ones, and everything is compared. The seed reproduces the plan, not the interleaving: the scheduler decides what
a process does when its signal arrives. If a victim has died and is not replaced yet, its kill is skipped and counted.

What a producer knows. Each of its threads (a *writer*) keeps an account in a mapped file, which outlives its SIGKILL.
It stores "begun" before each call and "appended" after it. For each record that a callback or a future completes, it
stores partition and offset. A kill between the first two stores leaves one call in doubt. Of a `send`, the one record
can be in the log or not. Of a `send_batch`, any first rows of each partition can be.

What must hold for the log, as kafka-python reads it::

    missing      no record that was appended (by its account) is missing
    lost         no record that was acknowledged is missing
    duplicated   no record occurs twice
    torn         every batch's and every record's checksum is right, and all batches are whole
    unexpected   there is no record that no producer has begun to append
    out of order each writer's records are in the order of their appends within each partition
    half         of an interrupted `send_batch`, the rows in a partition are the first ones for it
    misplaced    a record is in the partition that was requested, or that its key's hash selects, and an acknowledged
                 one at exactly the offset that it was acknowledged at
    failed       no record failed, no call raised
    unheard      a producer that closed knows the result of all its records

What must hold for the processes and the slab: no producer is stuck, no process died except by the plan, no sender
failed. At rest, every slot is free, by its header and by the bitmap. No lock is held, there are no waiters for memory,
every deque is empty, and no dead process is in the table. When the last sender has left, nothing is left in /dev/shm.
Progress never stops: the longest time in which no producer appended anything is less than ``--max-stall``.
"""
