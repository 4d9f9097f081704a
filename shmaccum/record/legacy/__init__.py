"""Message formats 0 and 1, Kafka's before 0.11: message sets, written and read."""
