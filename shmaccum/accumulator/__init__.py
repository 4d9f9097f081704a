"""The RecordAccumulator: one deque of batches per partition, shared by all processes of a host."""
