"""Spark for the benchmark: a session in a process of its own, its Kafka sink from Maven Central, and what tasks run."""
