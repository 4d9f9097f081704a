"""Kafka's transactions: the protocol with the brokers' coordinators, and the producer's side of it."""
