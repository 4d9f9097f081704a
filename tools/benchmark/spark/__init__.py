"""Spark for the benchmark: a session in its own process, its Kafka sink, its tasks."""
