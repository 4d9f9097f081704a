"""Arrow columns encoded to records, whole batches at a time."""
