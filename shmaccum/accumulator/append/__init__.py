"""The producers' half: appends records and columns to open batches, waits for memory, resolves futures."""
