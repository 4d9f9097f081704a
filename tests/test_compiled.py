"""Which form runs: plain Python, or the same compiled."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

import shmaccum
from shmaccum.shm import memory
from shmaccum.shm.layout import Geometry
from shmaccum.shm.locks import Turn
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
    held = SlabMemory(words, Geometry(64, 1))
    held.close()
    words.release()  # a view that is still held would keep it from that

    with pytest.raises(AttributeError if MEANT else IndexError):
        held.words[0]  # compiled, only compiled code has words


def test_one_thread_has_its_turn_at_a_time() -> None:
    mutex, times, rounds = Turn().mutex, 4, 2000
    count = [0]

    def take_turns(patience_s: float) -> None:
        done = 0
        while done < rounds:
            if mutex.acquire(timeout=patience_s):
                before = count[0]
                assert mutex.acquire(blocking=False)  # the same thread may come again
                mutex.release()
                count[0] = before + 1
                mutex.release()
                done += 1

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=take_turns, args=(0.001 if n % 2 else -1,)) for n in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    assert count[0] == times * rounds
    with pytest.raises(RuntimeError):
        mutex.release()
