"""Errors of a benchmark."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A measurement failed; the message has the reason and where to look. Whatever starts or measures raises it."""


class VoidError(BenchmarkError):
    """A contestant did not deliver its records, so its figures are meaningless."""


class MissingError(BenchmarkError):
    """A case needs something that is not available here; the message has what, and how to get it."""
