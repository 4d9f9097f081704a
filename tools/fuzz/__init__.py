"""Damage on purpose: slabs with overwritten words, and bytes that were never written by whom they claim to be from.

``python -m tools.fuzz --help`` says how to run it. A *target* makes inputs from a random generator, tries one, and says
what is wrong with how the package took it; ``tests/fuzz_corpus`` keeps inputs that once failed, and some that get far.
"""
