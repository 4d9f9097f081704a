"""Generates documents from the code: ``python -m tools.generate_docs``."""
