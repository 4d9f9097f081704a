"""Kills producers and senders at random under load, and accounts for every single record.

Real producer processes append numbered records, by `send` and by `send_batch`, to several partitions of two topics,
through a slab so small that they wait for memory all the time. A plan made from the seed says who is killed
(SIGKILL) or stopped for a while (SIGSTOP, SIGCONT), and when. A killed producer is replaced; a killed sender is
replaced by the producers, as in real life. In the end the producers that are left flush and close, the sender
delivers what the dead ones left, and everything is compared. The seed reproduces the plan, not the interleaving: what
a process is just doing when its signal comes is up to the scheduler. A kill whose victim is just not there, because it
died and the next one has not come yet, is left out and counted.

What a producer knows. Each of its threads (a *writer*) keeps an account in a mapped file, which outlives its
SIGKILL: "begun" is stored before each call and "appended" after it, and for each record that a callback or a future
told of, the partition and offset that it was told. A kill between the two stores leaves one call in doubt: of a
`send`, the one record may be in the log or not; of a `send_batch`, of the rows of each partition any first ones may.

What must hold of the log, as kafka-python reads it:

  missing         no record that was appended (by what its account says) is missing
  lost            no record that was acknowledged is missing
  duplicated      no record is there twice
  torn            every batch's and every record's checksum is right, there is nothing but whole batches
  unexpected      there is no record that no producer has begun to append
  out of order    each writer's records are in the order of their appends within each partition
  half            of a `send_batch` that was cut short, the rows in a partition are the first ones for it
  misplaced       a record is in the partition that was asked for, or that its key's hash says, and an acknowledged
                  one at the very offset that it was acknowledged at
  failed          no record was given up, no call raised
  unheard         a producer that closed has been told of all its records

What must hold of the processes and the slab: no producer is stuck, none died of anything but the plan, no sender
failed; at rest, every slot is free, by its header and by the bitmap, no lock is held, nobody waits for memory, no
deque has anything in it, no dead process is in the table; and when the last sender has left, nothing is left in
/dev/shm. There is progress all the time: the longest time in which no producer appended anything is less than
``--max-stall``.
"""
