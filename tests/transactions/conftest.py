"""A fake broker and a slab for the tests of transactions, kept for a whole module."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from producers import wait_until_gone
from transaction_broker import TransactionBroker
from transaction_scenes import Scene

from shmaccum import Producer

_numbers = itertools.count()


@pytest.fixture(scope="module", params=[1, 2], ids=["version-1", "version-2"])
def module_scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Return a scene whose broker has one version of the transaction protocol."""
    name = f"scene-{os.getpid()}-{next(_numbers)}"
    with TransactionBroker(request.param) as broker:
        scene = Scene(broker, name)
        with Producer(scene.settings()):  # keeps slab and sender
            yield scene
        wait_until_gone(name)


@pytest.fixture
def scene(module_scene: Scene) -> Scene:
    """Return the module's scene, with a broker that has forgotten everything."""
    module_scene.broker.reset()
    return module_scene
