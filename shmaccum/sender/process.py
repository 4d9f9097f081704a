"""The sender's process: starts it from a producer, and runs it.

A producer that finds no sender starts one; ``shmaccum sender`` runs one in the foreground. A started sender is
detached: its own session, no parent, none of its starter's descriptors, the root directory, default signal handlers.
It imports nothing from its starter's working directory (`shmaccum.sender.isolation`). Its configuration comes over a
pipe, never in argv or the environment, since it can hold passwords. Over another pipe it reports that it serves, or
why not: a wrong setting becomes an error of the starter.

Request and answer are a line of JSON each. The end of a pipe would not do as the end of a message: a child that the
starter forks meanwhile in another thread holds the starter's ends, and can itself be waiting for a sender.

The sender runs the installed code, which an upgrade can replace while its starter runs. It serves the starter's slab if
both versions lay slabs out alike. If not, the error says what to do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from shmaccum._core import memory_file
from shmaccum.abi import ABI_VERSION, VERSION
from shmaccum.accumulator.state.accumulator_state import AccumulatorState, attach_for
from shmaccum.config import ProducerConfig
from shmaccum.errors import SenderError, SenderExistsError, SlabError, SlabFullError, SlabInUseError
from shmaccum.record.format import message_format_magic
from shmaccum.sender import isolation
from shmaccum.sender.handover import await_role, has_successor
from shmaccum.shm import native
from shmaccum.shm.lifecycle import detach, look
from shmaccum.shm.reclaim import tend
from shmaccum.shm.slab import Slab

if TYPE_CHECKING:
    import subprocess

    from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
    from shmaccum.kafka.journal import Journal
    from shmaccum.sender.sender import Sender
    from shmaccum.sender.transport import Transport

logger = logging.getLogger(__name__)

_NAME: Final = "shmaccum-sender"
"""Of the process, in ``ps`` and ``top``."""

_SERVING: Final = "serving"
_EXISTS: Final = "exists"

_ATTEMPTS: Final = 3
"""Senders to start before `SenderError`: one that ends without an answer was killed, or cannot run here at all."""

_COMPLAINT: Final = 2000
"""Characters, from the end of the interpreter's standard error, that the error quotes."""

_FULL_TIMEOUT_S: Final = 2.0
_FULL_LOOK_S: Final = 0.05
"""How long a sender waits for a place in the process table, and how often it tries."""

_ONE_REQUEST_S: Final = 0.1
"""Signals within this time count as one: a terminal or a service manager can signal all senders of a host's shards, and
the process that passes the signal on to them."""

WATCH_S: Final = 0.01
"""Least seconds between two checks for a sender, while producers begin batches, poll and wait. A check is a system
call, and with many partitions or few records every record begins a batch."""

# The child's sys.path comes with the configuration: the program can have found this package by another path. The
# child loads the package from where the program has it, even if sys.path has changed or has another copy first.
_BOOTSTRAP: Final = """
import json, os, sys
request = json.loads(sys.stdin.buffer.readline())
if os.fork():
    os._exit(0)
sys.path[:] = request["path"]
try:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    spec = PathFinder.find_spec("shmaccum", [request["root"]])
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no package shmaccum in {request['root']}, where the program has it from")
    sys.modules["shmaccum"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["shmaccum"])
    import shmaccum.sender.sender
    from shmaccum.sender.process import started_by
except Exception as error:
    reason = error if isinstance(error, ImportError) else repr(error)
    if isinstance(error, ModuleNotFoundError) and request["left_out"]:
        reason = f"{reason} (not searched, since a sender runs in /: {request['left_out']} of sys.path)"
    answer = (f"{sys.executable} cannot import its code: {reason}; if shmaccum was upgraded or removed while this "
              "program ran, restart the program")
    os.write(1, (json.dumps(answer) + "\\n").encode())
    sys.exit(1)
started_by(request)
"""

_without_forks: Final = native.RLock()
"""Held over each fork, and while a sender's pipes are made: else a forked child could hold the sender's ends, and their
starter would not notice that the sender died."""
os.register_at_fork(
    before=_without_forks.acquire,
    after_in_parent=_without_forks.release,
    after_in_child=_without_forks._at_fork_reinit,  # as concurrent.futures
)


def make_transport(config: ProducerConfig, journal: Journal | None = None) -> Transport:
    """Return the transport that ``transport`` names, not started. Raises ApiVersionError: a library is missing."""
    # Imported here, as the sender below: producers import this module and need neither.
    if config.transport == "kafka":
        from shmaccum.sender.kafka.kafka_transport import KafkaTransport

        return KafkaTransport(config, journal)
    from pathlib import Path

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
    """Run the sender of the slab for these settings, until a signal stops it or it is no longer needed.

    ``on_serving`` is called each time that this process serves, once it is ready and handles signals. ``log`` is where
    this process's log is, for ``shmaccum status`` and errors. A supervised sender waits for the role if another process
    has it, and keeps it. An unsupervised one hands it over, and uses the shared settings it finds: its starter's can be
    old.

    Raises:
        SenderExistsError: the slab has a sender, and this one is not supervised.
        ShmaccumError: the slab or the transport cannot be used; says why.
    """
    from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
    from shmaccum.sender.logfile import SELDOM

    isolation.show_as(_NAME)
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
                # A record that came while we left started no other sender, since we still had the role.
                if is_over or slab.undelivered() == (0, 0) or slab.has_sender():
                    break
        finally:
            SELDOM.count_dropped(of_all=True)
            detach(slab)


def _attach(config: ProducerConfig, *, supervised: bool) -> Slab:
    """Attach as a sender; wait while another, starting or leaving, has the table entry reserved for senders.

    Raises:
        SenderExistsError: the slab has a sender, and this one is not supervised.
        As `attach_for`.
    """
    deadline = time.monotonic() + _FULL_TIMEOUT_S
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
            raise SenderExistsError(f"slab {name!r} has a sender already: process {pid}; a slab has one sender")
        time.sleep(_FULL_LOOK_S)


def _check_transport(config: ProducerConfig) -> None:
    """Start and close the transport: settings that fail must not make a working sender hand its role over."""
    transport = make_transport(config)
    try:
        transport.start()
    except SlabInUseError:
        return  # that sender has locked log.dir
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
    """Serve once; return True if stopped or if the role was handed over, False if idle."""
    if config.compression_type != "none":
        # Else the first batch would wait for these imports, and `gc.freeze` would miss them.
        import concurrent.futures.thread  # noqa: F401

        import cramjam  # noqa: F401

    from shmaccum.sender.sender import Sender
    from shmaccum.shm.broker_table import BrokerJournal

    with ExitStack() as cleanup:
        doorbell = await_role(slab, signals.received) if supervised else slab.become_sender()
        if doorbell is None:
            return True
        cleanup.callback(slab.resign_as_sender, doorbell)
        slab.incidents.note_log(log)
        transport = make_transport(config, BrokerJournal(slab))
        transport.start()
        cleanup.callback(transport.close)
        sender = Sender(accumulator, transport, doorbell, config, gives_way=not supervised)
        signals.stop(sender)
        # Modules live until the process ends: the garbage collector need not scan them again and again.
        gc.freeze()
        sender.run(lambda: on_serving(slab))
        return bool(signals.received) or sender.has_handed_over


class _StopSignals:
    """Stops the sender on SIGTERM, SIGINT, and SIGHUP unless it is ignored.

    ``received``: numbers of the signals that were a request, also of those before there was a sender to stop.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._sender: Sender | None = None
        self._requested_s = 0.0
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGINT, self._receive)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            signal.signal(signal.SIGHUP, self._receive)

    def stop(self, sender: Sender) -> None:
        """Stop this sender on a signal; at once if one came before."""
        self._sender = sender
        if self.received:
            sender.stop()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.received and now_s - self._requested_s < _ONE_REQUEST_S:
            return
        self._requested_s = now_s
        self.received.append(number)
        if self._sender is not None:
            self._sender.stop()


def ensure_sender(slab: Slab, config: ProducerConfig) -> None:
    """Start a sender if the slab has none, no process is starting one, and no supervised one waits for the role.

    Raises SenderError: it did not start, cannot work with these settings, or could not find the slab; says why.
    """
    if slab.has_sender() or has_successor(slab):
        return
    if not slab.lock_file.is_current():  # a sender would make another slab of that name
        raise SenderError(
            f"the files of slab {slab.name!r} were removed while it was in use, as systemd-logind does with RemoveIPC, "
            "and its sender has ended: no other can find it, and the records in it are lost; close the producer and "
            "make a new Producer"
        )
    with slab.lock_file.try_start() as mine:
        if mine and not slab.has_sender():
            if not slab.processes.has_place():
                slab.reap_dead()  # a sender that died with a lock keeps its entry until the lock is taken over
            _start(config)


def tend_shards(config: ProducerConfig) -> None:
    """Start a sender for each of the other shards that holds records and that no process uses.

    Raises SenderError: one did not start; says which, and why.
    """
    uid = os.geteuid()
    own = config.slab_name(uid)
    for name in config.shard_names(uid):
        if name != own:
            try:
                tend(name, partial(_start, config.in_slab(name)))
            except SenderError as error:
                raise SenderError(f"of its shard {name!r}: {error}") from error


class SenderWatch:
    """Looks whether a slab has a sender, at most every `WATCH_S`, however often it is called."""

    def __init__(self, slab: Slab, ensure: Callable[[], None]) -> None:
        self._slab = slab
        self._ensure = ensure
        self._next_s = 0.0

    def has_sender(self) -> bool:
        """Return whether there is a sender; look for one unless that was less than `WATCH_S` ago."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            if not self._slab.has_sender():
                return False
            self._next_s = now_s + WATCH_S
        return True

    def __call__(self) -> None:
        """Start a sender if there is none."""
        if not self.has_sender():
            self._ensure()
            self._next_s = time.monotonic() + WATCH_S


def _start(config: ProducerConfig) -> None:
    import subprocess

    if getattr(sys, "frozen", False):  # its executable would run the program again, which would wait for this sender
        raise SenderError(
            "the sender did not start: this program is frozen, as by PyInstaller, so that its executable is no Python "
            "interpreter; run `shmaccum sender` with the program's settings, from an environment that has shmaccum"
        )
    if not isolation.EXECUTABLE:
        raise SenderError(
            "the sender did not start: sys.executable is empty, as in a program that embeds Python and finds no "
            "python3 in PATH; put one into PATH, or run `shmaccum sender` with the program's settings"
        )
    path, left_out = isolation.search_path()
    starter = {"abi": ABI_VERSION, "version": VERSION, "path": path, "left_out": left_out, "root": isolation.ROOT}
    request = json.dumps(starter | {"config": config.to_json(os.geteuid())})
    for _ in range(_ATTEMPTS):
        try:
            with open(memory_file(b"request"), "w+b") as asked, open(memory_file(b"stderr"), "w+b") as stderr:
                # No pipe: if we are interrupted before we have written, it stays open, and its reader waits for ever.
                asked.write(request.encode())
                asked.seek(0)
                with _without_forks, isolation.undebugged():
                    process = subprocess.Popen(
                        isolation.command(_BOOTSTRAP, config.slab_name(os.geteuid())),
                        stdin=asked,
                        stdout=subprocess.PIPE,
                        stderr=stderr,
                        cwd="/",
                        env=isolation.environment(),
                        start_new_session=True,
                        encoding="utf-8",
                        errors="replace",
                    )
                answer = _answer_of(process)
                stderr.seek(0)
                complaint = stderr.read().decode(errors="backslashreplace")
        except OSError as error:
            raise SenderError(
                f"the sender did not start: {error}; check that {isolation.EXECUTABLE!r} can be run, and the limits on "
                "descriptors, processes and memory (ulimit -n, -u, -v)"
            ) from error
        if answer in (_SERVING, _EXISTS):
            return
        if answer:
            raise SenderError(f"the sender did not start: {answer}")
    from shmaccum.sender.logfile import log_path

    raise SenderError(
        f"the sender did not start: {_ATTEMPTS} attempts ended without an answer, the last one with status "
        f"{process.returncode}; standard error of the last one: {complaint.strip()[-_COMPLAINT:] or 'empty'}; log of "
        f"the sender: {log_path(config) or 'none'}"
    )


def _answer_of(process: subprocess.Popen[str]) -> str:
    """Return the answer of the interpreter that becomes the sender, empty if it died before one."""
    assert process.stdout is not None
    with process:
        # Lines of other kinds are not ours: a sitecustomize can print.
        answers = (json.loads(line) for line in process.stdout if line.startswith('"') and line.endswith("\n"))
        return next(answers, "")


def started_by(request: Mapping[str, Any]) -> None:
    """Run as the sender that a producer started; answer on standard output whether it serves, or why not."""

    def tell(answer: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the starter has died: other producers still need a sender
            os.write(1, (json.dumps(answer) + "\n").encode())
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
    isolation.raise_limits()
    os.chdir("/")
    log = ""
    try:
        _check_version(request)
        config = ProducerConfig.from_json(request["config"])
        log = begin_log(config)
        serve(config, on_serving, log)
    except BaseException as error:
        if isinstance(error, SenderExistsError):
            logger.info("not needed: %s", error)
        else:
            logger.exception("the sender failed")
        if not answered:
            more = f"; log of the sender: {log}" if log else ""
            tell(_EXISTS if isinstance(error, SenderExistsError) else f"{type(error).__name__}: {error}{more}")
        sys.exit(1)


def _check_version(request: Mapping[str, Any]) -> None:
    """Check that both codes lay slabs out alike. Raises SenderError: they do not; says how to deliver the records."""
    version, abi = request["version"], request["abi"]
    if abi == ABI_VERSION:
        return
    place = os.path.dirname(os.path.dirname(__file__))
    raise SenderError(
        f"shmaccum was replaced while this program ran: the program has version {version} (ABI {abi}), and "
        f"{place} is version {VERSION} (ABI {ABI_VERSION}), which cannot serve its slab. The "
        f"slab keeps its records. To deliver them, install {version} elsewhere (python -m venv old && old/bin/pip "
        f"install shmaccum=={version}) and run old/bin/shmaccum sender with the settings of this program; then restart "
        "the program"
    )
