"""The sender as a process: started by a producer that finds none, or in the foreground by ``shmaccum sender``.

A started sender is detached: a session of its own, no parent, no open descriptor of the program that started it.
Its configuration comes over a pipe, never in argv or the environment, since it can hold passwords; and over
another it says that it serves, or why it does not, so that a wrong setting is the starter's error and not silence.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from shmaccum.accumulator.record_accumulator import RecordAccumulator, slab_geometry
from shmaccum.config import ProducerConfig
from shmaccum.errors import SenderError, SenderExistsError
from shmaccum.record.format import message_format_magic
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab

if TYPE_CHECKING:
    from shmaccum.sender.sender import Sender
    from shmaccum.sender.transport import Transport

logger = logging.getLogger(__name__)

_SERVING: Final = "serving"
_EXISTS: Final = "exists"

_ATTEMPTS: Final = 3
"""Senders to start before giving up: one that ends without a word has been killed, or cannot run here at all."""

WATCH_S: Final = 0.01
"""How often producers look whether there is a sender, at most, while they begin batches, poll and wait: it is a system
call, and where partitions are very many, or records few, every record begins a batch."""

LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"

# The child's sys.path comes with the configuration: a program may have found this package by a path of its own.
_BOOTSTRAP: Final = """
import json, os, sys
request = json.load(sys.stdin)
if os.fork():
    os._exit(0)
sys.path[:] = request["path"]
from shmaccum.sender.process import started
started(request["config"])
"""


_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Keeps numpy from starting a thread for each processor as it is imported: they spin for a while, and are of no use to
a sender. Who has set it otherwise has it so."""


def make_transport(config: ProducerConfig) -> Transport:
    """Return the transport that ``transport`` names, not started yet.

    Raises:
        ApiVersionError: a library that it needs is missing.
    """
    # Only here, as with the sender below: producers import this module too.
    if config.transport == "kafka":
        from shmaccum.sender.kafka.transport import KafkaTransport

        return KafkaTransport(config)
    from shmaccum.sender.log.transport import LogTransport

    return LogTransport(
        Path(config.log_dir),
        config.num_partitions,
        config.segment_bytes,
        config.flush_messages,
        config.flush_ms,
        message_format_magic(config.message_format_version),
    )


def serve(config: ProducerConfig, on_serving: Callable[[Slab], None]) -> None:
    """Be the sender of the slab for these settings until told to stop or no longer needed.

    Args:
        config: the settings.
        on_serving: called once when everything is ready and signals are handled.

    Raises:
        SenderExistsError: the slab has a sender.
        ShmaccumError: why the slab or the transport cannot be used.
    """
    uid = os.geteuid()
    slab = attach(config.slab_name(uid), slab_geometry(config), config.slab_digest(uid))
    with slab.telling_of_damage():
        try:
            accumulator = RecordAccumulator(slab, config)
            while True:
                stopped = _serve_once(slab, accumulator, config, on_serving)
                # A record that came while we were leaving was seen by nobody else: the role was still taken.
                if stopped or slab.undelivered() == (0, 0) or slab.has_sender():
                    break
        finally:
            detach(slab)


def _serve_once(
    slab: Slab, accumulator: RecordAccumulator, config: ProducerConfig, on_serving: Callable[[Slab], None]
) -> bool:
    """Have the sender's role until stopped (True) or idle (False)."""
    import crc32c  # noqa: F401  # else the first batch would wait for it, and its objects would not be frozen

    from shmaccum.sender.sender import Sender

    with ExitStack() as cleanup:
        doorbell = slab.become_sender()
        cleanup.callback(slab.resign_as_sender, doorbell)
        transport = make_transport(config)
        transport.start()
        cleanup.callback(transport.close)
        sender = Sender(accumulator, transport, doorbell, config)
        stopped = _stop_on_signals(sender)
        # What is imported by now stays to the end: the garbage collector need not look through it again and again.
        gc.freeze()
        sender.run(lambda: on_serving(slab))
        return stopped()


def _stop_on_signals(sender: Sender) -> Callable[[], bool]:
    """Have SIGTERM, SIGINT, and SIGHUP where nobody ignores it, stop the sender; return what says whether one did."""
    received = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        sender.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, stop)
    return lambda: bool(received)


def ensure_sender(slab: Slab, config: ProducerConfig) -> None:
    """Start a sender if the slab has none and nobody else is starting one.

    Raises:
        SenderError: it could not be started, or found that it cannot work with these settings; says why.
    """
    if slab.has_sender():
        return
    with slab.lock_file.try_start() as mine:
        if mine and not slab.has_sender():
            _start(config)


class SenderWatch:
    """Has one process see to it, now and then, that a slab has a sender, however often it is called.

    Args:
        ensure: what sees to it.
    """

    def __init__(self, ensure: Callable[[], None]) -> None:
        self._ensure = ensure
        self._next_s = 0.0

    def __call__(self) -> None:
        """See to it, if that was not done lately."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._ensure()
            self._next_s = now_s + WATCH_S


def _start(config: ProducerConfig) -> None:
    request = json.dumps({"path": sys.path, "config": config.to_json()})
    for _ in range(_ATTEMPTS):
        try:
            with subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_ONE_THREAD | os.environ,
                start_new_session=True,
                text=True,
            ) as process:
                answer, _ = process.communicate(request)
        except OSError as error:
            raise SenderError(
                f"the sender did not start: {error}; a process takes {sys.executable!r}, memory, and some descriptors "
                "(ulimit -n, -u, -v)"
            ) from error
        if answer in (_SERVING, _EXISTS):
            return
        if answer:
            raise SenderError(f"the sender did not start: {answer}")
    raise SenderError(
        f"the sender did not start: {_ATTEMPTS} times it ended without a word, the last one with status "
        f"{process.returncode}"
    )


def started(config_json: str) -> None:
    """Be a sender that a producer started: tell it over standard output how that went, and serve."""

    def tell(answer: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the starter has died: others need a sender all the same
            os.write(1, answer.encode())
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)

    answered = False

    def on_serving(slab: Slab) -> None:
        nonlocal answered
        if not answered:
            answered = True
            tell(_SERVING)

    os.chdir("/")
    try:
        config = ProducerConfig.from_json(config_json)
        if config.sender_log_file:
            logging.basicConfig(filename=config.sender_log_file, level=logging.INFO, format=LOG_FORMAT)
        serve(config, on_serving)
    except BaseException as error:
        if isinstance(error, SenderExistsError):
            logger.info("somebody was quicker: %s", error)
        else:
            logger.exception("the sender failed")
        if not answered:
            tell(_EXISTS if isinstance(error, SenderExistsError) else f"{type(error).__name__}: {error}")
        sys.exit(1)
