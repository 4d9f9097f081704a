"""Kafka's record formats: reads and writes memory that the caller passes.

Nothing here finds, locks or frees that memory. Only the compiled `shmaccum.record.v2.fastrecords` knows that it is a
slab's: it writes a record straight into it.

Start at `shmaccum.record.format` to write, at `shmaccum.record.reader` to read. Only
`shmaccum.record.columns.encoder` and its callers need pyarrow.
"""
