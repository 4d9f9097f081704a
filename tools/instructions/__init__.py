"""Counts the instructions of the calls that a record or a batch costs, and compares them with those on record.

A count does not depend on how busy the machine is. It shows a change that makes a call a few per cent slower, where a
measured time does not. It has no instructions of the kernel, no waits and no cache misses.

A count is the least of some calls, after many that warm up the interpreter. Each operation has a process of its own,
with a fixed seed of hashes. A count holds for one version of Python and one compiler. The record names them. Counts of
others are printed, and compared with nothing.
"""
