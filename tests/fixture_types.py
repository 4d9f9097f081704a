"""Types of what fixtures return, for the signatures of tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # a child process that loads the module of a test then imports only what that needs
    from processes import Child

    from shmaccum import Producer
    from tools.kafka import KafkaCluster
    from tools.support.accumulators import Accumulators

Link = Connection
"""A child process's end of the pipe to its test, see `processes`."""
Start = Callable[..., "Child"]
Produce = Callable[..., "Producer"]
Make = Callable[..., Any]
"""A fixture that makes producers by another client's name."""
Settings = Callable[..., dict[str, object]]
OpenAccumulator = Callable[..., "Accumulators"]
MakeCluster = Callable[..., "KafkaCluster"]
Written = Callable[[str], list[Any]]
Command = Callable[..., AbstractContextManager[subprocess.Popen[str]]]
Capture = pytest.CaptureFixture[str]
LogCapture = pytest.LogCaptureFixture
MonkeyPatch = pytest.MonkeyPatch
