"""Damage on purpose: overwritten words of slabs, and forged bytes.

``python -m tools.fuzz --help`` shows how to run it. A *target* makes inputs from a random generator, tries one, and
returns what is wrong with the package's reaction. ``tests/fuzz_corpus`` keeps inputs that once failed, and some that
reach far.
"""
