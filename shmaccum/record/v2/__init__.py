"""Message format 2, Kafka's own since 0.11: records and batches, written and read."""
