"""Promela models of the lock, of the life of slots, of growth, and of exactly once: ``python -m tools.model``."""
