"""Writes and reads message format 2, Kafka's own since 0.11."""
