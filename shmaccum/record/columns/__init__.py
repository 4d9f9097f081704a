"""Encodes Arrow columns to records, whole batches at a time."""
