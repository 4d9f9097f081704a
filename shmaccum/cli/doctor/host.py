"""Checks of the host, or the container: what a slab needs of it."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import stat
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import suppress
from pathlib import Path
from typing import Final

from shmaccum import procfs
from shmaccum.abi import VERSION
from shmaccum.accumulator.state.accumulator_state import slab_geometry
from shmaccum.cli.doctor.finding import Finding, Level
from shmaccum.config import ProducerConfig
from shmaccum.observe.report import user_name
from shmaccum.observe.wording import in_bytes
from shmaccum.sender.logfile import log_path
from shmaccum.shm import names
from shmaccum.shm.files import is_of_others
from shmaccum.shm.segment import memory_needed

_DESCRIPTORS: Final = 256
"""A producer needs about ten, the sender one more for each broker; the rest is the program's."""
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
    yield _version()
    yield from _shared_memory(config)
    yield from _limits(config)
    yield _log(config)
    yield _removal()
    yield _clock()


def _version() -> Finding:
    text = f"{VERSION}, Python {platform.python_version()}, {platform.platform(terse=True)}"
    return Finding(Level.OK, "shmaccum", text)


def _shared_memory(config: ProducerConfig) -> Iterator[Finding]:
    subject, directory = "memory", names.SHM_DIRECTORY
    try:
        mode = os.stat(directory).st_mode
    except OSError as error:
        yield Finding(Level.PROBLEM, subject, f"{directory}: {error.strerror}", f"mount a tmpfs at {directory}")
        return
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        advice = f"mount -o remount,rw {directory}"
        yield Finding(Level.PROBLEM, subject, f"{directory} is mounted read-only", advice)
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        yield Finding(Level.PROBLEM, subject, f"{directory} is not writable", f"chmod 1777 {directory}")
        return
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        text = f"{directory} has no sticky bit: every user can remove and replace the files of a slab"
        yield Finding(Level.PROBLEM, subject, text, f"chmod 1777 {directory}")
    kind = _filesystem(directory)
    if kind not in ("tmpfs", ""):
        text = f"{directory} is on {kind}, which writes a slab to a disk"
        yield Finding(Level.WARNING, subject, text, f"mount a tmpfs at {directory}")
    slabs = config.slab_names(os.geteuid())
    for name in slabs:
        if is_of_others(names.segment_path(name)):
            owner = os.lstat(names.segment_path(name)).st_uid
            text = f"slab {name} belongs to user id {owner}, and this is user id {os.geteuid()}"
            yield Finding(Level.PROBLEM, subject, text, "run as that user, or choose another shmaccum.name")
            return
    missing = [name for name in slabs if not os.path.exists(names.segment_path(name))]
    for name in slabs:
        if name not in missing:
            yield Finding(Level.OK, subject, f"slab {name} exists")
    room, a_slab = os.statvfs(directory), memory_needed(slab_geometry(config))
    needed, free = len(slabs) * a_slab, room.f_bavail * room.f_frsize
    is_limited = room.f_blocks > 0
    text = f"{in_bytes(needed)} for {'a slab' if len(slabs) == 1 else f'{len(slabs)} shards'} with these settings"
    if missing and is_limited and free < len(missing) * a_slab:
        advice = (
            f"lower buffer.memory, or enlarge {directory}: docker run --shm-size, an emptyDir of medium Memory in "
            f"Kubernetes, mount -o remount,size=... {directory}"
        )
        yield Finding(Level.PROBLEM, subject, f"{text}, but {directory} has {in_bytes(free)} free", advice)
    elif missing:
        yield Finding(Level.OK, subject, f"{text}; {directory} has {in_bytes(free) if is_limited else 'no limit'} free")
    limit = procfs.memory_limit()
    if limit is not None and limit < needed:
        advice = "raise the container's memory limit, or lower buffer.memory: the slab counts as shared memory"
        yield Finding(Level.PROBLEM, subject, f"{text}, but the cgroup may use {in_bytes(limit)}", advice)


def _filesystem(directory: str) -> str:
    """Return the type of a directory's file system; empty if it is no mount."""
    with suppress(OSError):
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            _, where, kind, *_ = line.split(" ")
            if where == directory:
                return kind
    return ""


def _limits(config: ProducerConfig) -> Iterator[Finding]:
    size = slab_geometry(config).total_size
    found = False
    for kind, option, least, what in (
        (resource.RLIMIT_NOFILE, "-n", _DESCRIPTORS, "descriptors"),
        (resource.RLIMIT_FSIZE, "-f", size, "bytes in a file"),
        (resource.RLIMIT_AS, "-v", size, "bytes of address space"),
    ):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY and soft < least:
            found = True
            level = Level.WARNING if kind == resource.RLIMIT_NOFILE else Level.PROBLEM
            yield Finding(level, "limits", f"{soft:,} {what}, where {least:,} are needed", f"raise ulimit {option}")
    if not found:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield Finding(
            Level.OK, "limits", f"{'unlimited' if soft == resource.RLIM_INFINITY else f'{soft:,}'} descriptors"
        )


def _log(config: ProducerConfig) -> Finding:
    """Check that a sender of this user can write its log."""
    subject = "log"
    try:
        path = log_path(config)
    except RuntimeError as error:
        return Finding(Level.WARNING, subject, f"senders write no log: {error}", "set sender.log.file")
    if not path:
        return Finding(Level.OK, subject, "senders write no log, as sender.log.file says")
    file = Path(path)
    place = next(each for each in (file, *file.absolute().parents) if os.path.exists(each))
    can_write = os.access(place, os.W_OK if place == file else os.W_OK | os.X_OK)
    reason = f"no right to write {place}"
    if place == file and not file.is_file():
        can_write, reason = False, "it is no regular file"
    elif config.sender_log_file and place not in (file, file.absolute().parent):
        can_write, reason = False, f"there is no directory {file.absolute().parent}"  # a sender makes only its default
    if can_write and (place == file or place.is_dir()):
        return Finding(Level.OK, subject, f"senders log to {path}")
    advice = f"set sender.log.file to a file that user id {os.geteuid()} can write"
    level = Level.PROBLEM if config.sender_log_file else Level.WARNING
    return Finding(level, subject, f"senders cannot log to {path}: {reason}", advice)


def _removal() -> Finding:
    """Check whether systemd-logind will remove this user's slabs at the end of a session (``RemoveIPC``)."""
    subject, uid = "RemoveIPC", os.geteuid()
    if not _LOGIND.is_dir():
        return Finding(Level.OK, subject, "there is no systemd-logind")
    if uid < _FIRST_ORDINARY_USER:
        return Finding(Level.OK, subject, f"systemd-logind spares system users, such as user id {uid}")
    user = user_name(uid) or str(uid)
    if (_LINGER / user).exists():
        return Finding(Level.OK, subject, f"user {user} lingers")
    if not _removes_ipc(_LOGIND_SETTINGS):
        return Finding(Level.OK, subject, "RemoveIPC=no")
    text = f"systemd-logind removes the slabs of user {user}, with their records, when the user's last session ends"
    advice = f"loginctl enable-linger {user}, or a system user, or RemoveIPC=no in /etc/systemd/logind.conf"
    return Finding(Level.WARNING, subject, text, advice)


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
        return Finding(Level.OK, "clock", f"cannot be asked: {os.strerror(ctypes.get_errno())}")
    if state == _UNSYNCHRONIZED:
        text = "not synchronized: timestamps of records, and with them retention and joins by time, can be wrong"
        return Finding(Level.WARNING, "clock", text, "run chrony, systemd-timesyncd or ntpd on the host")
    return Finding(Level.OK, "clock", "synchronized")
