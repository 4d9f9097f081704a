"""``shmaccum doctor``: finds what in this host, its slabs and the cluster will not work, and says what to do."""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import platform
import resource
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.text import Text

from shmaccum import procfs
from shmaccum.abi import VERSION
from shmaccum.accumulator.state.accumulator_state import slab_geometry
from shmaccum.cli.settings_arguments import SETTINGS_HELP, add_settings, given_settings, seconds
from shmaccum.cli.terminal import console
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    AuthenticationError,
    KafkaError,
    SlabError,
    SlabMemoryError,
    SlabNotFoundError,
    SlabPermissionError,
    SslAuthenticationError,
    UnsupportedVersionError,
    escaped,
    printable,
)
from shmaccum.kafka.connection import Connection
from shmaccum.kafka.handshake import Call
from shmaccum.kafka.journal import OwnJournal
from shmaccum.kafka.messages import METADATA
from shmaccum.observe.report import SlabReport, UnreadableSlab, all_reports
from shmaccum.observe.verdict import stopped_holders, tables_in_use
from shmaccum.observe.wording import count, in_bytes, user_name
from shmaccum.sender.logfile import log_path
from shmaccum.shm import names
from shmaccum.shm.files import is_of_others
from shmaccum.shm.lifecycle import differences, other_settings
from shmaccum.shm.segment import memory_needed
from shmaccum.shm.shared_settings import UserSettings
from shmaccum.transactions.broker_client import BrokerClient, call
from shmaccum.transactions.coordinator import FEATURE, deadline_after

_EPILOG: Final = f"""\
Give it the producers' settings: then it checks their slab's memory, and connects and logs in as they do. It changes
nothing, and never starts a sender. Run it as the producers' user, on their host or in their container.

{SETTINGS_HELP}

Exit status: 0 if nothing is broken (there can be warnings), 1 if there is a problem, 2 for wrong settings.

examples:
  shmaccum doctor
  shmaccum doctor --config producer.properties
  shmaccum doctor -X bootstrap.servers=broker1:9092 --json | jq -r 'select(.level != "ok") | .advice'
"""
_TEXT_COLUMN: Final = 22


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not well, or not for ever."""
    PROBLEM = "problem"
    """Something does not work."""


class Finding(NamedTuple):
    """What a check has found of a subject, and what to do about it, if anything."""

    level: Level
    subject: str
    text: str
    advice: str = ""


_ok, _warning, _problem = (partial(Finding, level) for level in Level)
_STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    add_settings(parser)
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=10.0, help="wait so long for a broker [%(default)s]"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Check, and show what is found."""
    given = given_settings(args, {})
    has_transport = bool({"bootstrap.servers", "transport"} & given.keys())
    # Without an address there is no cluster to check, but all the rest can be.
    settings = given if has_transport else given | {"bootstrap.servers": "localhost:9092"}
    config = ProducerConfig.parse(settings)
    checks: Iterator[Finding] = chain(host_findings(config), slab_findings())
    if has_transport:
        checks = chain(checks, settings_findings(config))
    if config.transport == "log":
        checks = chain(checks, log_findings(config))
    elif has_transport:
        checks = chain(checks, cluster_findings(settings, args.timeout))
    levels: Counter[Level] = Counter()
    with _silence():
        for finding in checks:
            levels[finding.level] += 1
            if args.json:
                print(json.dumps(finding._asdict()), flush=True)
            else:
                _show(finding)
    if not args.json:
        if not has_transport:
            console().print("\nNo broker was checked: give the producers' settings by --config or -X.")
        console().print(f"\n{count(levels[Level.PROBLEM], 'problem')}, {count(levels[Level.WARNING], 'warning')}")
    return 1 if levels[Level.PROBLEM] else 0


@contextmanager
def _silence() -> Iterator[None]:
    """Log nothing of failed connections: the findings say it."""
    logger = logging.getLogger("shmaccum")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _show(finding: Finding) -> None:
    line = Text(f"{finding.level:<8}", style=_STYLES[finding.level])
    line.append(f" {finding.subject:<{_TEXT_COLUMN - 10}} {escaped(finding.text)}", style="default")
    console().print(line)
    if finding.advice:
        console().print(" " * _TEXT_COLUMN + finding.advice)


# --- the host -----------------------------------------------------------------------------------------

_DESCRIPTORS: Final = 256
"""A producer needs about ten, the sender one more for each broker; the rest is the program's."""
_PROGRAMS: Final = 64 << 20
"""Memory that a program and the sender need beside the slab: with less, the kernel kills the one that makes it."""
_FIRST_ORDINARY_USER: Final = 1000
"""``UID_MIN`` of login.defs: systemd-logind spares the files of users below it."""
_LOGIND: Final = Path("/run/systemd/users")
"""There where systemd-logind runs."""
_LOGIND_SETTINGS: Final = ("/usr/lib/systemd/logind.conf", "/etc/systemd/logind.conf")
_LINGER: Final = Path("/var/lib/systemd/linger")
_TIMEX_SIZE: Final = 512
"""More than ``struct timex`` has on any machine."""
_UNSYNCHRONIZED: Final = 5
"""``TIME_ERROR``, of ``adjtimex``."""


def host_findings(config: ProducerConfig) -> Iterator[Finding]:
    """Check the host for a slab with these settings."""
    yield _ok("shmaccum", f"{VERSION}, Python {platform.python_version()}, {platform.platform(terse=True)}")
    yield from _shared_memory(config)
    yield from _limits(config)
    yield from dict.fromkeys(_log(config.in_slab(name)) for name in config.slab_names(os.geteuid()))
    yield _removal()
    yield _clock()


def _shared_memory(config: ProducerConfig) -> Iterator[Finding]:
    subject, directory = "memory", names.SHM_DIRECTORY
    try:
        mode = os.stat(directory).st_mode
    except OSError as error:
        yield _problem(subject, f"{directory}: {error.strerror}", f"mount a tmpfs at {directory}")
        return
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        yield _problem(subject, f"{directory} is mounted read-only", f"mount -o remount,rw {directory}")
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        yield _problem(subject, f"{directory} is not writable", f"chmod 1777 {directory}")
        return
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        text = f"{directory} has no sticky bit: every user can remove and replace the files of a slab"
        yield _problem(subject, text, f"chmod 1777 {directory}")
    kind = _filesystem(directory)
    if kind not in ("tmpfs", ""):
        text = f"{directory} is on {kind}, which writes a slab to a disk"
        yield _warning(subject, text, f"mount a tmpfs at {directory}")
    slabs = config.slab_names(os.geteuid())
    for name in slabs:
        if is_of_others(names.segment_path(name)):
            owner = os.lstat(names.segment_path(name)).st_uid
            text = f"slab {name} belongs to user id {owner}, and this is user id {os.geteuid()}"
            yield _problem(subject, text, "run as that user, or choose another shmaccum.name")
            return
    missing = [name for name in slabs if not os.path.exists(names.segment_path(name))]
    for name in slabs:
        if name not in missing:
            yield _ok(subject, f"slab {name} exists")
    room, a_slab = os.statvfs(directory), memory_needed(slab_geometry(config))
    needed, free = len(slabs) * a_slab, room.f_bavail * room.f_frsize
    is_limited = room.f_blocks > 0
    text = f"{in_bytes(needed)} for {'a slab' if len(slabs) == 1 else f'{len(slabs)} shards'} with these settings"
    if missing and is_limited and free < len(missing) * a_slab:
        advice = (
            f"lower buffer.memory, or enlarge {directory}: docker run --shm-size, an emptyDir of medium Memory in "
            f"Kubernetes, mount -o remount,size=... {directory}"
        )
        yield _problem(subject, f"{text}, but {directory} has {in_bytes(free)} free", advice)
    elif missing:
        yield _ok(subject, f"{text}; {directory} has {in_bytes(free) if is_limited else 'no limit'} free")
    limit = procfs.memory_limit()
    if limit is not None and limit < needed + _PROGRAMS:
        advice = "raise the container's memory limit, or lower buffer.memory: the slab counts as shared memory"
        finding, left = (_problem, "") if limit < needed else (_warning, ", which leaves little for the programs")
        yield finding(subject, f"{text}, but the cgroup may use {in_bytes(limit)}{left}", advice)


def _filesystem(directory: str) -> str:
    """Return the type of a directory's file system; empty if it is no mount."""
    with suppress(OSError):
        mounts = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
        return next((kind for _, where, kind, *_ in reversed(mounts) if where == directory), "")
    return ""


def _limits(config: ProducerConfig) -> Iterator[Finding]:
    size = slab_geometry(config).total_size
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "unlimited" if descriptors == resource.RLIM_INFINITY else f"{descriptors:,}"
    found = [
        finding("limits", f"{soft:,} {what}, where {least:,} are needed", f"raise ulimit {option}")
        for finding, kind, option, least, what in (
            (_warning, resource.RLIMIT_NOFILE, "-n", _DESCRIPTORS, "descriptors"),
            (_problem, resource.RLIMIT_FSIZE, "-f", size, "bytes in a file"),
            (_problem, resource.RLIMIT_AS, "-v", size, "bytes of address space"),
        )
        if (soft := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY and soft < least
    ]
    yield from found or [_ok("limits", f"{shown} descriptors")]


def _log(config: ProducerConfig) -> Finding:
    """Check that a sender of this user can write its log."""
    subject = "log"
    try:
        path = log_path(config)
    except RuntimeError as error:
        return _warning(subject, f"senders write no log: {error}", "set sender.log.file")
    if not path:
        return _ok(subject, "senders write no log, as sender.log.file says")
    file = Path(path)
    place = next(each for each in (file, *file.absolute().parents) if os.path.exists(each))
    can_write = os.access(place, os.W_OK if place == file else os.W_OK | os.X_OK)
    reason = f"no right to write {place}"
    if place == file and not file.is_file():
        can_write, reason = False, "it is no regular file"
    elif config.sender_log_file and place not in (file, file.absolute().parent):
        can_write, reason = False, f"there is no directory {file.absolute().parent}"  # a sender makes only its default
    if can_write and (place == file or place.is_dir()):
        return _ok(subject, f"senders log to {path}")
    advice = f"set sender.log.file to a file that user id {os.geteuid()} can write"
    finding = _problem if config.sender_log_file else _warning
    return finding(subject, f"senders cannot log to {path}: {reason}", advice)


def _removal() -> Finding:
    """Check whether systemd-logind will remove this user's slabs at the end of a session (``RemoveIPC``)."""
    subject, uid = "RemoveIPC", os.geteuid()
    if not _LOGIND.is_dir():
        return _ok(subject, "there is no systemd-logind")
    if uid < _FIRST_ORDINARY_USER:
        return _ok(subject, f"systemd-logind spares system users, such as user id {uid}")
    user = user_name(uid) or str(uid)
    if (_LINGER / user).exists():
        return _ok(subject, f"user {user} lingers")
    if not _removes_ipc(_LOGIND_SETTINGS):
        return _ok(subject, "RemoveIPC=no")
    text = f"systemd-logind removes the slabs of user {user}, with their records, when the user's last session ends"
    advice = f"loginctl enable-linger {user}, or a system user, or RemoveIPC=no in /etc/systemd/logind.conf"
    return _warning(subject, text, advice)


def _removes_ipc(files: Iterable[str]) -> bool:
    """Return RemoveIPC of logind's files of settings and their ``.d`` directories; the last one that has it counts."""
    removes = True
    for file in files:
        directory = Path(f"{file}.d")
        for path in (Path(file), *(sorted(directory.glob("*.conf")) if directory.is_dir() else ())):
            parser = ConfigParser(strict=False, interpolation=None, allow_no_value=True)
            with suppress(OSError, UnicodeDecodeError, ConfigParserError):
                parser.read_string(path.read_text())
                removes = parser.getboolean("Login", "RemoveIPC", fallback=removes)
    return removes


def _clock() -> Finding:
    """Check that the kernel's clock is synchronized: it gives records their timestamps."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = libc.adjtimex(ctypes.create_string_buffer(_TIMEX_SIZE))
    if state < 0:
        return _ok("clock", f"cannot be asked: {os.strerror(ctypes.get_errno())}")
    if state == _UNSYNCHRONIZED:
        text = "not synchronized: timestamps of records, and with them retention and joins by time, can be wrong"
        return _warning("clock", text, "run chrony, systemd-timesyncd or ntpd on the host")
    return _ok("clock", "synchronized")


# --- the slabs ----------------------------------------------------------------------------------------


def settings_findings(config: ProducerConfig) -> Iterator[Finding]:
    """Check that a producer with these settings can use the slabs of their name, as far as these exist."""
    mine = UserSettings(config.fixed_settings(), {}, VERSION)
    for name in config.slab_names(os.geteuid()):
        try:
            if found := differences(name, mine):
                raise other_settings(name, found)
        except (SlabNotFoundError, SlabPermissionError):
            continue  # another user's is a problem of the host
        except SlabError as error:
            yield _problem("settings", str(error))


def slab_findings() -> Iterator[Finding]:
    """Check all slabs."""
    try:
        slabs = list(all_reports())
    except SlabMemoryError as error:
        yield _problem("slabs", str(error))
        return
    if not slabs:
        yield _ok("slabs", "there are none")
    for slab in slabs:
        if isinstance(slab, UnreadableSlab) and is_of_others(names.segment_path(slab.name)):
            yield _ok("slab", f"{slab.name}: {slab.error}")
        elif isinstance(slab, UnreadableSlab):
            advice = "if it is of another version, look at it with that version"
            yield _warning("slab", f"{slab.name} cannot be read: {slab.error}", advice)
        else:
            yield from list(_troubles(slab)) or [_ok("slab", f"{slab.name}: nothing is wrong")]


def _troubles(slab: SlabReport) -> Iterator[Finding]:
    name, sender = slab.name, slab.sender
    waiting = sum(each.queued_batches + each.in_flight_batches for each in slab.partitions)
    if sender.stopped:
        advice = f"kill -CONT {sender.pid}, unless it is being debugged"
        yield _problem("slab", f"{name}: its sender, {sender.halt()}", advice)
    for found in stopped_holders(slab):
        advice = "kill -CONT it, unless it is being debugged; or kill -KILL it"
        yield _problem("slab", f"{name}: {found.text}", advice)
    if waiting and not sender.stopped and not sender.alive:
        advice = (
            f"shmaccum sender with the producers' settings delivers them; shmaccum destroy {name} --force drops them"
        )
        yield _warning("slab", f"{name}: {count(waiting, 'batch')}, and no sender", advice)
    yield from _rights(slab)
    for incident in slab.incidents:
        if incident.lasts:
            yield _problem("slab", f"{name}: {incident}", "shmaccum doctor with its settings shows more")
    if slab.bottleneck is not None:
        finding = _warning if slab.memory.waiting_threads else _ok
        text = f"{name}: bound by {slab.bottleneck.bound}: {slab.bottleneck.text}"
        yield finding("slab", text, slab.bottleneck.advice)
    elif slab.memory.waiting_threads:
        text = f"{name}: {count(slab.memory.waiting_threads, 'thread')} waiting for memory"
        yield _warning("slab", text, "see what keeps its batches from being sent")
    for text, advice in tables_in_use(slab):
        if advice:
            yield _warning("slab", f"{name}: {text} in use", f"{advice}, in a new slab")


def _rights(slab: SlabReport) -> Iterator[Finding]:
    """Check that every file of a slab belongs to its owner alone: else producers and senders refuse it."""
    for path in names.leftovers(slab.name):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            continue  # it comes and goes with a process
        if status.st_uid != slab.owner_uid or status.st_mode & 0o077:
            text = f"{slab.name}: {path} has mode {stat.filemode(status.st_mode)} and user id {status.st_uid}"
            yield _problem("slab", text, f"chmod 600 {path}; chown {slab.owner_uid} {path}")


# --- the way to the brokers ---------------------------------------------------------------------------

_ATTEMPTS: Final = 3
"""Failed connections after which a broker counts as unreachable: its name can have several addresses."""
_NEWEST_METADATA: Final = 12
"""Later versions name a topic by its id."""
_ADVICE: Final[Mapping[type[KafkaError], str]] = {
    SslAuthenticationError: (
        "check ssl.truststore.location, the broker's certificate and the name in it, and the port; with ALERT, check "
        "ssl.keystore.location"
    ),
    AuthenticationError: "check security.protocol, sasl.mechanism, the user and the password",
    UnsupportedVersionError: "use brokers of Kafka 2.1 or later, and their own port, not a controller's",
    KafkaError: "check the name, the port, the firewall, and whether the broker runs and security.protocol is its",
}
_ADVERTISED: Final = "clients connect to what brokers advertise: check their advertised.listeners, and the names here"


def cluster_findings(settings: Mapping[str, object], timeout_s: float) -> Iterator[Finding]:
    """Connect to each of ``bootstrap.servers``, then to all that the cluster names."""
    given = ProducerConfig.parse(settings).bootstrap_servers
    advertised: dict[str, Node] = {}
    for address in given:
        finding, brokers = _ask({**settings, "bootstrap.servers": address}, None, timeout_s, address)
        yield finding
        advertised |= {node.address: node for node in brokers}
    for address, node in sorted(advertised.items(), key=lambda each: each[1].id):
        if address not in given:
            where = f"{printable(address)} (advertised by broker {node.id})"
            yield _ask(settings, node, timeout_s, where, _ADVERTISED)[0]


def log_findings(config: ProducerConfig) -> Iterator[Finding]:
    """Check the directory of the transport ``log``."""
    directory = Path(config.log_dir)
    place = next(each for each in (directory.absolute(), *directory.absolute().parents) if os.path.exists(each))
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        yield _ok("log", f"{directory} {'is' if place == directory.absolute() else 'can be made'}")
    else:
        yield _problem("log", f"{place} is not a directory that this user can write to", "check log.dir")


def _ask(
    settings: Mapping[str, object], node: Node | None, timeout_s: float, where: str, advice: str = ""
) -> tuple[Finding, list[Node]]:
    """Connect and log in to a broker, and ask for the cluster's brokers, with the addresses that they advertise.

    Without a ``node``, it is one of ``bootstrap.servers``. By default, the advice depends on the error.
    """
    journal = _Journal()
    features: dict[str, int] = {}

    def make(connection: Connection) -> Call:
        features.update(connection.handshake.versions.features)
        return call(METADATA.of(topics=[]), connection, oldest=1, newest=_NEWEST_METADATA)

    began = time.monotonic()
    with BrokerClient(ProducerConfig.parse(settings), journal) as client:
        journal.client = client
        try:
            answer: Any = client.ask(node, make, deadline_after(timeout_s * 1000))
        except KafkaError as error:
            cause = error if journal.last is None else journal.last
            advice = advice or next(text for kind, text in _ADVICE.items() if isinstance(cause, kind))
            return _problem("broker", f"{where}: {type(cause).__name__}: {cause}", advice), []
    took_ms = (time.monotonic() - began) * 1000
    text = f"{where} let us in and answered after {took_ms:.0f} ms; {len(answer.brokers)} in the cluster"
    version = f"transactions of version {2 if features.get(FEATURE, 0) >= 2 else 1}"
    brokers = [Node(each.node_id, each.host, each.port) for each in answer.brokers]
    return _ok("broker", f"{text}, {version}"), brokers


class _Journal(OwnJournal):
    """Keeps the last incident of a client's connections, and ends its wait after a few."""

    def __init__(self) -> None:
        super().__init__()
        self.client: BrokerClient | None = None
        self.last: KafkaError | None = None
        self._failures = 0

    def note(
        self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0, node: int | None = None
    ) -> int:
        self.last = error(text)
        self._failures += 1
        if self.client is not None and (self._failures >= _ATTEMPTS or not error.retriable):
            self.client.interrupt()
        return 0
