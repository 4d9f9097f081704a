"""The RecordAccumulator: one deque of batches per partition, shared by all the processes of a host."""
