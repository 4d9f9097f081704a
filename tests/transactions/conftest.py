"""A fake broker and a slab for the tests of transactions, kept for a whole module."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from processes import wait_until
from producers import wait_until_gone
from transaction_broker import TransactionBroker
from transaction_scenes import Scene

from shmaccum import Producer
from shmaccum.observe.report import report

SLOT_SIZE = 16384
_numbers = itertools.count()


@contextmanager
def kept_scene(**more: object) -> Iterator[Scene]:
    """Make a scene; its sender and its slab stay for the block."""
    name = f"scene-{os.getpid()}-{next(_numbers)}"
    with TransactionBroker(1) as broker:
        scene = Scene(broker, name, **more)
        with Producer(scene.settings()):  # keeps slab and sender
            yield scene
        wait_until_gone(name)


def renewed(scene: Scene, version: int) -> Scene:
    """Return a scene whose broker has forgotten everything, and has one version of the protocol.

    Producers ask for the version on connections of their own, and the sender takes it from the slab.
    """
    # The sender can still have batches of the last test, with the producer id that the broker gives in this one, too.
    wait_until(lambda: report(scene.name).memory.used == 0, "nothing of the last test is left in the slab")
    scene.broker.reset()
    scene.broker.version = version
    return scene


@pytest.fixture(scope="module")
def module_scene() -> Iterator[Scene]:
    with kept_scene() as scene:
        yield scene


@pytest.fixture(scope="module")
def tight_module_scene() -> Iterator[Scene]:
    with kept_scene(batch_size=SLOT_SIZE, buffer_memory=4 * SLOT_SIZE) as scene:
        yield scene


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def version(request: pytest.FixtureRequest) -> int:
    """Return the version of the transaction protocol."""
    return int(request.param)


@pytest.fixture
def scene(module_scene: Scene, version: int) -> Scene:
    """Return the module's scene as if it were new."""
    return renewed(module_scene, version)


@pytest.fixture
def tight(tight_module_scene: Scene, version: int) -> Scene:
    """Return the module's scene as if it were new, with room for few batches."""
    return renewed(tight_module_scene, version)
