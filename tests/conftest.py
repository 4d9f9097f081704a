"""What tests of several processes share: names of slabs, children, and that nothing stays behind."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from processes import Child, How
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from shmaccum.shm.names import PREFIX, SHM_DIRECTORY
from tools import spark_jvm

pytest_plugins = ("accumulator_fixtures", "brokers", "wire_fixtures")

_SPARK = Path(__file__).with_name("spark")

_states: list[tempfile.TemporaryDirectory[str]] = []


def pytest_configure() -> None:
    """Give child processes default signal handlers and fast JVM options; give examples of hypothesis no deadline.

    Background jobs of a shell ignore SIGINT, and ``nohup`` ignores SIGHUP. Children inherit that, but no handler, so a
    handler that does nothing is set. How long an example takes depends on the load of the machine.
    """
    _states.append(tempfile.TemporaryDirectory(prefix="shmaccum-tests-"))
    os.environ["XDG_STATE_HOME"] = _states[0].name  # the logs of senders
    settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("unhurried")
    os.environ.setdefault(spark_jvm.VARIABLE, spark_jvm.jvm_options())
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_unconfigure() -> None:
    """Remove the logs of senders."""
    for state in _states:
        state.cleanup()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take long, so that in the end no worker is left alone with one of them.

    These are the ones with a Spark session, with Kafka, or with a test that has a timeout of its own.
    """
    long = {item.path for item in items if _takes_long(item)}
    items.sort(key=lambda item: (item.path.parent != _SPARK, item.path not in long))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Give all tests with the Spark session to one worker: starting another session takes as long as ten of them."""
    if config.getoption("dist") != "loadfile":
        return None

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(super()._split_scope(nodeid))
            return str(file.parent if file.parent.name == _SPARK.name else file)

    return Scheduling(config, log)


def _takes_long(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("timeout") is not None or not {"spark", "apache_kafka"}.isdisjoint(fixtures)


_OURS = f"test{os.getpid()}"
"""Begins the name of every slab of this test run, and of no other's."""
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves anything of its slabs in /dev/shm."""
    yield
    left = [path for path in Path(SHM_DIRECTORY).iterdir() if f"{PREFIX}{_OURS}-" in path.name]
    for path in left:
        path.unlink()  # the next test is not to blame
    assert not left


@pytest.fixture
def slab_name() -> str:
    """Return a new slab's name. For further ones of the same test, append to it."""
    return f"{_OURS}-{next(_numbers)}"


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Return ``start(function, *args, how="clean")``: run ``function(link, *args)`` in a `Child`."""
    children: list[Child] = []

    def start_child(function: Callable[..., Any], *args: Any, how: How = "clean") -> Child:
        children.append(Child(function, args, how))
        return children[-1]

    yield start_child
    for child in children:
        print(child.end())  # shown if the test has failed
