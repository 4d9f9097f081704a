"""Ends what a driver leaves undecided when its process ends: by a process beside it, the *watch*.

At an exit of its driver, Spark calls a sink's ``abort``, but ends the Python process that runs it. A driver that is
killed calls nothing. So a process that plans a batch starts one that Spark does not know, in its own session. It
keeps what to do, waits until the driver's process is gone, does that, and ends.

A driver has one watch, since its socket's abstract name has the driver's process id and start time. Other users of the
host can connect to that socket, or take its name: both sides check the user, since settings can hold passwords.
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import socket
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from shmaccum.procfs import start_time
from shmaccum.sender import isolation

if TYPE_CHECKING:  # the watch imports the rest when it is needed: it can wait for weeks
    from shmaccum.config import ProducerConfig
    from shmaccum.transactions.batch_committer import Plan
    from shmaccum.transactions.writer_id import Writer
    from shmaccum.transactions.writer_state import Driver

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.5
"""How often the watch looks whether the driver lives."""
_PATIENCE_S: Final = 5.0
"""How long either side waits for the other."""
_LARGEST: Final = 1 << 20
"""Most bytes of a message."""
_AT_ONCE: Final = 16
"""Most writers whose batches are ended at the same time."""
_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred``: process, user and group."""
_PROGRAM: Final = """
import os, sys
if os.fork():
    os._exit(0)
sys.path[:] = {path!r}
from shmaccum.transactions.driver_watch import serve
serve({pid}, {ticks})
"""


def end_batch_after(driver: Driver, config: ProducerConfig, writer: Writer, plan: Plan | None) -> None:
    """End a writer's batch when the driver's process has ended (`BatchCommitter.end_batch`), unless `forget` is first.

    It replaces an earlier call for this writer.

    Without a watch the batch is left to the writer's next plan, so its failure is a warning only.
    """
    _say(driver, writer, pickle.dumps((config, writer, plan)))


def forget(driver: Driver, writer: Writer) -> None:
    """Take back what `end_batch_after` has asked for a writer."""
    _say(driver, writer, b"")


def socket_name(driver: Driver) -> str:
    """Return the name of the watch's socket."""
    return f"\0shmaccum-watch-{os.geteuid()}-{driver.pid}-{driver.ticks}"


def _say(driver: Driver, writer: Writer, work: bytes) -> None:
    message = pickle.dumps((writer.prefix, work))
    name = socket_name(driver)
    try:
        if len(message) > _LARGEST:
            raise OSError(errno.EMSGSIZE, f"the settings have {len(message)} bytes, and {_LARGEST} are allowed")
        _ensure(name, driver)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE_S)
            connection.connect(name)
            if not _is_ours(connection):
                raise OSError(errno.EPERM, "another user has taken its socket's name")
            connection.sendall(message)
    except OSError as error:
        logger.warning(
            "%r: nothing watches the driver, %s: %s. If it ends amid a batch, the next plan or shmaccum transactions "
            "recover aborts what it leaves",
            writer.name,
            driver,
            error,
        )


def _ensure(name: str, driver: Driver) -> None:
    """Start the watch, unless there is one. A connection waits in the socket until the watch accepts it."""
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(name)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return
            raise
        listening.listen()
        path, _ = isolation.search_path()
        program = _PROGRAM.format(path=path, pid=driver.pid, ticks=driver.ticks)
        with subprocess.Popen(
            isolation.command(program),
            stdin=listening.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=isolation.environment(),
            start_new_session=True,
        ):
            pass  # it forks: the watch has no parent


def serve(pid: int, ticks: int) -> None:
    """Run the watch of a driver; its listening socket is standard input."""
    isolation.use_default_signals()
    isolation.leave_no_core_dump()
    left: dict[str, bytes] = {}
    with socket.socket(fileno=0) as listening:
        while True:
            is_gone = not ticks or start_time(pid) != ticks
            listening.settimeout(0 if is_gone else _LOOK_S)
            try:
                connection, _ = listening.accept()
            except (TimeoutError, BlockingIOError):
                if is_gone:
                    break
                continue
            with connection:
                prefix, work = _received(connection)
            if work:
                left[prefix] = work
            else:
                left.pop(prefix, None)
    batches = [pickle.loads(each) for each in left.values()]
    if batches:
        from shmaccum.errors import ConfigError
        from shmaccum.sender.logfile import begin_log

        with suppress(ConfigError, OSError):  # executors on other hosts can have the file that this one has not
            begin_log(batches[0][0])  # the sender's, of this host
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # each can wait for max.block.ms
        list(pool.map(_end_batch, batches))


def _received(connection: socket.socket) -> tuple[str, bytes]:
    """Return a writer's prefix and its work; both are empty if the message is another user's, or is cut."""
    nothing = "", b""
    message = b""
    if not _is_ours(connection):
        return nothing
    try:
        connection.settimeout(_PATIENCE_S)
        while len(message) <= _LARGEST and (part := connection.recv(_LARGEST)):
            message += part
        prefix, work = pickle.loads(message)
    except (OSError, EOFError, pickle.UnpicklingError):
        return nothing  # Spark has killed the process that planned: it plans the batch again
    return prefix, work


def _is_ours(connection: socket.socket) -> bool:
    """Return whether the other side has our user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _end_batch(batch: tuple[ProducerConfig, Writer, Plan | None]) -> None:
    """End a writer's batch; a failure is logged, and leaves the batch to the next plan."""
    from shmaccum.errors import ShmaccumError
    from shmaccum.transactions.batch_committer import BatchCommitter
    from shmaccum.transactions.broker_client import BrokerClient

    config, writer, plan = batch
    logger.info("%r: its driver has ended. What it has left is committed if it is decided, else aborted", writer.name)
    try:
        with BrokerClient(config) as client:
            BatchCommitter(client, config, writer).end_batch(plan)
    except ShmaccumError as error:
        logger.warning("%r: what its driver has left stays for its next plan: %s", writer.name, error)
