"""Writes and reads message format 1, Kafka's before 0.11."""
