"""A fake broker and a slab for the tests of transactions, kept for a whole module."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from processes import wait_until
from producers import wait_until_gone
from transaction_broker import TransactionBroker
from transaction_scenes import Scene

from shmaccum import Producer
from shmaccum.observe.report import report

_numbers = itertools.count()


@pytest.fixture(scope="module")
def module_scene() -> Iterator[Scene]:
    """Return a scene; its sender and its slab stay for the module's tests."""
    name = f"scene-{os.getpid()}-{next(_numbers)}"
    with TransactionBroker(1) as broker:
        scene = Scene(broker, name)
        with Producer(scene.settings()):  # keeps slab and sender
            yield scene
        wait_until_gone(name)


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def scene(module_scene: Scene, request: pytest.FixtureRequest) -> Scene:
    """Return the module's scene; its broker has forgotten everything, and has one version of the protocol.

    Producers ask for the version on connections of their own, and the sender takes it from the slab.
    """
    # The sender can still have batches of the last test, with the producer id that the broker gives in this one, too.
    wait_until(lambda: report(module_scene.name).memory.used == 0, "nothing of the last test is left in the slab")
    module_scene.broker.reset()
    module_scene.broker.version = request.param
    return module_scene
