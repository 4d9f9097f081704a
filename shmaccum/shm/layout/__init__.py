"""The slab's memory layout: the only description of it.

One segment holds these regions, in this order. Each starts on a cache line, the slots on a page::

    +----------------------+ 0
    | superblock           | creator, digest of the settings, sizes; the sender's words; counters
    +----------------------+
    | settings             | two copies: what users agree on, and what they share, as JSON; never a password
    +----------------------+
    | locks                | one cache line each: the owner (the semaphore is a named one, outside)
    +----------------------+
    | process table        | one entry a process: identity, lock words, wake-up words, ends of its completion ring
    +----------------------+
    | topic table          | name, metadata state, number of partitions
    +----------------------+
    | partition table      | lane, topic and number, leader, deque of batches, sequence, counters
    +----------------------+
    | lanes                | transactions: holder, transactional id, producer id and epoch
    +----------------------+
    | incidents            | a ring of errors between the sender and the brokers; the place of the sender's log
    +----------------------+
    | broker table         | how each broker does, as the sender sees it
    +----------------------+
    | histograms           | times and sizes: the sender's, one a broker, and those of each process
    +----------------------+
    | waiter queue         | a ring of tickets: the waiters for memory, in order of arrival
    +----------------------+
    | completion rings     | one a process: results of the batches that it contributed to
    +----------------------+
    | free-list bitmap     | one bit a slot, set where free
    +----------------------+
    | slot headers         | the truth about every slot
    +----------------------+
    | redo areas           | one a stripe, if any: compressed records not yet copied into their slot
    +----------------------+ page
    | slots                | batch.size bytes each: the records
    +----------------------+ total size

All but the settings, the redo areas and the slots consists of aligned 8-byte words, used as unsigned integers. So each
store is atomic, and a process can be killed between any two of them.
A word's *index* in the segment (byte offset / 8) is that of its entry plus the number below.

The slot headers are the truth. A word marked *index* below follows from them: it is valid only under its lock, and is
rebuilt from them after a death.
"""

from shmaccum.abi import ABI_VERSION as ABI_VERSION
from shmaccum.shm.layout.fields import *  # noqa: F403
from shmaccum.shm.layout.geometry import *  # noqa: F403
from shmaccum.shm.layout.statistics import *  # noqa: F403
from shmaccum.shm.layout.words import *  # noqa: F403
