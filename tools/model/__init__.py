"""Promela models of the lock with its takeover and of the life of slots: ``python -m tools.model``."""
