"""Which form runs: plain Python, or the same compiled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import shmaccum
from shmaccum.shm import memory
from shmaccum.shm.memory import SlabMemory

SOURCE = Path(__file__).resolve().parents[1]
MEANT = os.environ.get("SHMACCUM_COMPILED") == "1"


def test_the_form_that_runs_is_the_one_that_is_meant() -> None:
    assert shmaccum.compiled == MEANT
    assert memory.__file__.endswith(".py") != MEANT


def test_the_source_tree_holds_nothing_compiled() -> None:
    assert not list((SOURCE / "shmaccum").rglob("*.so"))


def test_words_that_are_not_there_any_more_are_an_index_error() -> None:
    words = memoryview(bytearray(64)).cast("Q")
    held = SlabMemory(words)
    held.close()
    words.release()  # a view that is still held would keep it from that

    with pytest.raises(AttributeError if MEANT else IndexError):
        held.words[0]  # compiled, only compiled code has words
