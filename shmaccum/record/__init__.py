"""Kafka's record formats: reads and writes memory that the caller passes.

Nothing here finds, locks or frees that memory.

Start at `shmaccum.record.format`. Only `shmaccum.record.columns` and its callers need pyarrow.
"""
