"""The end of a run: everything is delivered, the slab is at rest, the sender exits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Final

from shmaccum.errors import SlabError
from shmaccum.producer.producer import Producer
from shmaccum.shm.lifecycle import look
from tools.support.processes import Children, is_descendant
from tools.support.slabcheck import SlabFigures, figures, sender_pid, shared_files, unrest

DELIVERY_PATIENCE_S: Final = 60.0
"""Limit for the delivery of everything in the slab."""
_REST_PATIENCE_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.02


def come_to_rest(name: str, settings: Mapping[str, object], children: Children) -> tuple[SlabFigures | None, list[str]]:
    """Wait until a slab without producers is empty and at rest, and then until its sender has left.

    If the last sender was killed and no producer needed another, one more producer attaches, which starts a sender.

    Args:
        name: the slab's name.
        settings: of its producers.
        children: the processes of the run.

    Returns:
        The slab's counts, None if it no longer existed; and a line for each violation.
    """
    if not sender_pid(name):
        children.wait_for(children.fork("the last producer", lambda: _come_and_go(settings)), DELIVERY_PATIENCE_S)
    counted, problems = _at_rest(name, children)
    deadline = time.monotonic() + _REST_PATIENCE_S
    asked: set[int] = set()
    while (left := shared_files(name)) and time.monotonic() < deadline:
        # Another one can appear: a killed producer may have been starting it.
        pid = sender_pid(name)
        if pid not in asked and is_descendant(pid):
            asked.add(pid)  # only one signal: after a second one it would exit at once
            os.kill(pid, signal.SIGTERM)
        children.reap()
        time.sleep(_LOOK_EVERY_S)
    return counted, problems + [f"left in /dev/shm: {file.name}" for file in left]


def _come_and_go(settings: Mapping[str, object]) -> int:
    Producer(settings).close()
    return 0


def _at_rest(name: str, children: Children) -> tuple[SlabFigures | None, list[str]]:
    counted = None
    deadline = time.monotonic() + _REST_PATIENCE_S
    last = time.monotonic() + DELIVERY_PATIENCE_S
    left: list[str] = []
    while True:
        children.reap()
        try:
            with look(name) as view:
                counted = figures(view)
                left = unrest(view)
                if view.undelivered() != (0, 0):
                    deadline = min(time.monotonic() + _REST_PATIENCE_S, last)
        except SlabError as error:  # it does not exist, or not yet
            left = [str(error), *(line for line in left if line != str(error))]
        if not left or time.monotonic() > deadline:
            return counted, [f"at rest: {line}" for line in left]
        time.sleep(_LOOK_EVERY_S)


def acknowledged(name: str) -> int:
    """Return how many records the slab has counted as acknowledged, 0 without a slab."""
    try:
        with look(name) as view:
            return figures(view).records_sent
    except SlabError:
        return 0
