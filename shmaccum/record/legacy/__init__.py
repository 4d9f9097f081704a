"""Writes and reads message formats 0 and 1, Kafka's before 0.11."""
