"""What can go wrong with a benchmark."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A measurement could not be made; the message says which, why, and where to look."""


class VoidError(BenchmarkError):
    """A contestant did not deliver what it was given: its figures say nothing."""


class MissingError(BenchmarkError):
    """What a case needs is not to be had here; the message says what, and how to get it."""
