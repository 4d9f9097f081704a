"""Kafka's record formats: everything that knows a byte of them, and nothing that knows where the bytes live.

Start at `shmaccum.record.format` to write, at `shmaccum.record.reader` to read. Only
`shmaccum.record.columns.encoder`, and what builds on it, needs pyarrow.
"""
