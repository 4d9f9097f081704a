"""The sender as a process: started by a producer that finds none, or in the foreground by ``shmaccum sender``.

A started sender is detached: a session of its own, no parent, no open descriptor of the program that started it, the
root directory, the usual signals (`shmaccum.sender.isolation`). It imports nothing from the working directory of that
program (`shmaccum.sender.isolation`). Its configuration comes over a pipe, never in argv or the environment, since it
can hold passwords; and over another it says that it serves, or why it does not, so that a wrong setting is the
starter's error and not silence.

The code that it runs is what is installed when it starts. That can be another version than its starter's, which was
upgraded while it ran: the sender serves the slab that the starter names, if both lay slabs out alike, and says what to
do if they do not.
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
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from shmaccum import __version__
from shmaccum.abi import ABI_VERSION
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.accumulator_state import AccumulatorState, attach_for
from shmaccum.config import ProducerConfig
from shmaccum.errors import SenderError, SenderExistsError, SlabError, SlabFullError, SlabInUseError
from shmaccum.record.format import message_format_magic
from shmaccum.sender import isolation
from shmaccum.sender.handover import await_role, has_successor
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.lifecycle import detach, look
from shmaccum.shm.slab import Slab

if TYPE_CHECKING:
    from shmaccum.sender.sender import Sender
    from shmaccum.sender.transport import Journal, Transport

logger = logging.getLogger(__name__)

_SERVING: Final = "serving"
_EXISTS: Final = "exists"

_ATTEMPTS: Final = 3
"""Senders to start before giving up: one that ends without a word has been killed, or cannot run here at all."""

_COMPLAINT: Final = 2000
"""Characters of what an interpreter that did not get far wrote to standard error, from its end, in our error."""

_FULL_PATIENCE_S: Final = 2.0
_FULL_LOOK_S: Final = 0.05
"""How long a sender waits for a place in the process table, and how often it tries."""

WATCH_S: Final = 0.01
"""How often producers look whether there is a sender, at most, while they begin batches, poll and wait: it is a system
call, and where partitions are very many, or records few, every record begins a batch."""

# The child's sys.path comes with the configuration: a program may have found this package by a path of its own. The
# package itself is loaded from where the program has it, even if sys.path has changed since or has another one first.
_BOOTSTRAP: Final = """
import json, os, sys
request = json.load(sys.stdin)
if os.fork():
    os._exit(0)
sys.path[:] = request["path"]
try:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    spec = PathFinder.find_spec("shmaccum", [request["root"]])
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no package shmaccum in {request['root']} any more")
    sys.modules["shmaccum"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["shmaccum"])
    from shmaccum.sender.process import started_by
except Exception as error:
    reason = error if isinstance(error, ImportError) else repr(error)
    if isinstance(error, ModuleNotFoundError) and request["left_out"]:
        reason = f"{reason} (not searched, for a sender runs in /: {request['left_out']} of sys.path)"
    os.write(1, f"{sys.executable} cannot import its code: {reason}; if shmaccum was upgraded or removed while this "
             "program ran, restart the program".encode())
    sys.exit(1)
started_by(request)
"""

_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Keeps numpy from starting a thread for each processor as it is imported: they spin for a while, and are of no use to
a sender. Who has set it otherwise has it so."""


def make_transport(config: ProducerConfig, journal: Journal | None = None) -> Transport:
    """Return the transport that ``transport`` names, not started yet.

    Args:
        config: the settings.
        journal: where it notes how its connections fare.

    Raises:
        ApiVersionError: a library that it needs is missing.
    """
    # Only here, as with the sender below: producers import this module too.
    if config.transport == "kafka":
        from shmaccum.sender.kafka.kafka_transport import KafkaTransport

        return KafkaTransport(config, journal)
    from shmaccum.sender.log.log_transport import LogTransport

    return LogTransport(
        Path(config.log_dir),
        config.num_partitions,
        config.segment_bytes,
        config.flush_messages,
        config.flush_ms,
        message_format_magic(config.message_format_version),
    )


def serve(
    config: ProducerConfig, on_serving: Callable[[Slab], None], log: str = "", *, supervised: bool = False
) -> None:
    """Be the sender of the slab for these settings until told to stop or no longer needed.

    Args:
        config: the settings.
        on_serving: called once when everything is ready and signals are handled.
        log: where this process's log is, for whoever looks for it.
        supervised: whether to wait for the role if another process has it, and to keep it. One that is not supervised
            hands the role over to one that is, and goes by the shared settings that it finds: its starter's may be old.

    Raises:
        SenderExistsError: the slab has a sender, and this one is not supervised.
        ShmaccumError: why the slab or the transport cannot be used.
    """
    if not config.sender_core_dump:
        isolation.leave_no_core_dump()
    slab = _attach(config, supervised=supervised)
    with slab.reporting_damage():
        try:
            accumulator = SenderAccumulator(AccumulatorState(slab, config), config)
            if supervised and slab.has_sender():
                _check_transport(config)
            signals = _StopSignals()
            while True:
                is_over = _serve_once(slab, accumulator, config, on_serving, log, signals, supervised)
                # A record that came while we were leaving was seen by nobody else: the role was still taken.
                if is_over or slab.undelivered() == (0, 0) or slab.has_sender():
                    break
        finally:
            detach(slab)


def _attach(config: ProducerConfig, *, supervised: bool) -> Slab:
    """Attach as a sender. One that has only just come, or is leaving, can have the place that is kept for us.

    Raises:
        SenderExistsError: it has come, and this one is not supervised.
        As `attach_for`.
    """
    deadline = time.monotonic() + _FULL_PATIENCE_S
    while True:
        try:
            return attach_for(config, decides=supervised, sender=True)
        except SlabFullError:
            if time.monotonic() > deadline:
                raise
        name = config.slab_name(os.geteuid())
        pid = None
        with contextlib.suppress(SlabError), look(name) as view:
            sender = view.sender()
            pid = sender.pid if sender.alive else None
        if pid is not None and not supervised:
            raise SenderExistsError(f"slab {name!r} has a sender already: process {pid}; one is enough")
        time.sleep(_FULL_LOOK_S)


def _check_transport(config: ProducerConfig) -> None:
    """Make sure that the transport can be started, before a sender that works is asked to give way."""
    transport = make_transport(config)
    try:
        transport.start()
    except SlabInUseError:
        return  # that sender has the log's directory
    transport.close()


def _serve_once(
    slab: Slab,
    accumulator: SenderAccumulator,
    config: ProducerConfig,
    on_serving: Callable[[Slab], None],
    log: str,
    signals: _StopSignals,
    supervised: bool,
) -> bool:
    """Have the sender's role until stopped or handed over (True) or idle (False)."""
    import crc32c  # noqa: F401  # else the first batch would wait for it, and its objects would not be frozen

    from shmaccum.sender.sender import Sender

    with ExitStack() as cleanup:
        doorbell = await_role(slab, signals.received) if supervised else slab.become_sender()
        if doorbell is None:
            return True
        cleanup.callback(slab.resign_as_sender, doorbell)
        incidents = slab.companion(Incidents)
        incidents.note_log(log)
        transport = make_transport(config, incidents)
        transport.start()
        cleanup.callback(transport.close)
        sender = Sender(accumulator, transport, doorbell, config, gives_way=not supervised)
        signals.stop(sender)
        # What is imported by now stays to the end: the garbage collector need not look through it again and again.
        gc.freeze()
        sender.run(lambda: on_serving(slab))
        return bool(signals.received) or sender.has_handed_over


class _StopSignals:
    """SIGTERM, SIGINT, and SIGHUP where nobody ignores it: they stop the sender.

    Attributes:
        received: those that came, also before there was a sender to stop.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._sender: Sender | None = None
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGINT, self._receive)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(signal.SIGHUP, self._receive)

    def stop(self, sender: Sender) -> None:
        """Have the signals stop a sender; those that came before count."""
        self._sender = sender
        if self.received:
            sender.stop()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if self._sender is not None:
            self._sender.stop()


def ensure_sender(slab: Slab, config: ProducerConfig) -> None:
    """Start a sender if the slab has none, nobody else is starting one, and no supervised one takes over now.

    Raises:
        SenderError: it could not be started, or found that it cannot work with these settings; says why.
    """
    if slab.has_sender() or has_successor(slab):
        return
    with slab.lock_file.try_start() as mine:
        if mine and not slab.has_sender():
            if not slab.processes.has_place():
                slab.reap_dead()  # a sender that died over a lock: its entry is kept until that is seen to
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
    path, left_out = isolation.search_path()
    starter = {"abi": ABI_VERSION, "version": __version__, "path": path, "left_out": left_out, "root": isolation.ROOT}
    request = json.dumps(starter | {"config": config.to_json(os.geteuid())})
    for _ in range(_ATTEMPTS):
        try:
            with subprocess.Popen(
                isolation.command(_BOOTSTRAP),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=_ONE_THREAD | isolation.environment(),
                start_new_session=True,
                encoding="utf-8",
                errors="backslashreplace",
            ) as process:
                answer, complaint = process.communicate(request)
        except OSError as error:
            raise SenderError(
                f"the sender did not start: {error}; a process takes {isolation.EXECUTABLE!r}, memory, and some "
                "descriptors (ulimit -n, -u, -v)"
            ) from error
        if answer in (_SERVING, _EXISTS):
            return
        if answer:
            raise SenderError(f"the sender did not start: {answer}")
    from shmaccum.sender.logfile import log_path

    raise SenderError(
        f"the sender did not start: {_ATTEMPTS} times it ended without a word, the last one with status "
        f"{process.returncode}; standard error of the last one: {complaint.strip()[-_COMPLAINT:] or 'empty'}; log of "
        f"the sender: {log_path(config) or 'none'}"
    )


def started(config_json: str) -> None:
    """Refuse to be the sender of a program that still runs version 0.1.0, which asks in this way."""
    started_by({"abi": 5, "version": "0.1.0", "config": config_json})


def started_by(request: Mapping[str, Any]) -> None:
    """Be a sender that a producer started: tell it over standard output how that went, and serve.

    Args:
        request: ``config``, as its `ProducerConfig.to_json` wrote it, and the ``version`` and the ``abi`` of its code.
    """

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

    from shmaccum.sender.logfile import begin_log

    isolation.use_default_signals()
    os.chdir("/")
    log = ""
    try:
        _check_version(request)
        config = ProducerConfig.from_json(request["config"])
        log = begin_log(config)
        serve(config, on_serving, log)
    except BaseException as error:
        if isinstance(error, SenderExistsError):
            logger.info("somebody was quicker: %s", error)
        else:
            logger.exception("the sender failed")
        if not answered:
            more = f"; log of the sender: {log}" if log else ""
            tell(_EXISTS if isinstance(error, SenderExistsError) else f"{type(error).__name__}: {error}{more}")
        sys.exit(1)


def _check_version(request: Mapping[str, Any]) -> None:
    """Make sure that this code lays slabs out as the starter's does.

    Raises:
        SenderError: it does not; says what to do about the records.
    """
    version, abi = request["version"], request["abi"]
    if abi == ABI_VERSION:
        return
    raise SenderError(
        f"shmaccum was replaced while this program ran: the program has version {version} (ABI {abi}), and "
        f"{Path(__file__).parents[1]} is version {__version__} (ABI {ABI_VERSION}), which cannot serve its slab. What "
        f"the slab holds stays there. To deliver it, install {version} elsewhere (python -m venv old && old/bin/pip "
        f"install shmaccum=={version}) and run old/bin/shmaccum sender with the settings of this program; then restart "
        "the program"
    )
