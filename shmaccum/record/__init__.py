"""Kafka's record formats: bytes only, independent of where they are stored.

Start at `shmaccum.record.format` to write, at `shmaccum.record.reader` to read. Only
`shmaccum.record.columns.encoder` and its callers need pyarrow.
"""
