"""Isolates the sender from its starter, and its memory from core dumps.

The sender runs in the same interpreter, but in ``/`` and with absolute search paths only. Any user can put a
``json.py`` into the working directory of a program; the sender holds passwords and must not import it.

It serves other programs, too. So it has the options that say which files Python reads, and none that change what the
code does: ``-O`` removes checks, and ``-W error`` turns a library's warning into the end of the sender.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

logger = logging.getLogger(__name__)

ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""Where this package was found: the sender imports this copy, even if the search path holds another."""

EXECUTABLE: Final = os.path.abspath(sys.executable) if sys.executable else ""
"""This interpreter. Python leaves ``sys.executable`` relative if it was found by a relative entry of ``PATH``."""

_OPTIONS: Final = {
    "isolated": "-I",
    "ignore_environment": "-E",
    "no_user_site": "-s",
    "no_site": "-S",
    "dont_write_bytecode": "-B",
}
"""Attribute of ``sys.flags`` -> the option that sets it, of those that the sender has from its starter."""
_X_OPTIONS: Final = ("utf8", "pycache_prefix", "frozen_modules")
"""The same of options ``-X``."""
_NOT_FOR_SENDERS: Final = ("PYTHONOPTIMIZE", "PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONINSPECT")
"""Variables that have the effect of options which the sender does not have."""


def command(program: str, *arguments: str) -> list[str]:
    """Return the command line that runs a Python source in an interpreter like this one.

    Every user of the host can read source and arguments in ``/proc``.
    """
    options = [option for name, option in _OPTIONS.items() if getattr(sys.flags, name)]
    for name in _X_OPTIONS:
        value = sys._xoptions.get(name)
        if value is not None:
            options += "-X", name if value is True else f"{name}={value}"
    return [EXECUTABLE, *options, "-P", "-c", program, *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment, without what a sender does not have from its starter.

    These are the relative entries of ``PYTHONPATH``, and variables that change what Python's code does.
    """
    variables = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_SENDERS}
    entries = variables.pop("PYTHONPATH", "").split(os.pathsep)
    if absolute := [entry for entry in entries if os.path.isabs(entry)]:
        variables["PYTHONPATH"] = os.pathsep.join(absolute)
    return variables


def search_path() -> tuple[list[str], list[str]]:
    """Return the absolute entries of ``sys.path``, and the relative ones."""
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    absolute = list(filter(os.path.isabs, entries))
    return absolute, [entry for entry in entries if entry not in absolute]


def undebugged() -> AbstractContextManager[None]:
    """Keep this program's debugger out of the interpreters that the block starts.

    pydevd, the debugger in VS Code and PyCharm, changes the command line of each Python that a program starts. The
    sender would wait for a debugger to attach, stop at its breakpoints, and end with it.
    """
    debugger = sys.modules.get("_pydev_bundle.pydev_monkey")
    skip: Callable[[], AbstractContextManager[None]] = getattr(debugger, "skip_subprocess_arg_patch", nullcontext)
    return skip()


_IGNORED_BY_PYTHON: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Python ignores them and raises errors instead."""
_NO_DUMP: Final = 1
"""As RLIMIT_CORE: too little for any file. It also keeps the kernel from piping a dump to a program, which 0 does not
(``coredump_pipe`` in Linux's fs/coredump.c)."""


def use_default_signals() -> None:
    """Unblock all signals and restore default handlers: fork and exec pass blocked and ignored signals on.

    A sender that blocks SIGTERM cannot be stopped. One that ignores SIGCHLD or SIGHUP differs from other senders.
    """
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


_LIMITS: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CPU)


def raise_limits() -> None:
    """Raise soft limits to the hard ones: a program that limits itself must not limit the others' sender."""
    for limit in _LIMITS:
        _, hard = resource.getrlimit(limit)
        with suppress(OSError, ValueError):  # more descriptors than the system allows by now
            resource.setrlimit(limit, (hard, hard))


def show_as(name: str) -> None:
    """Have ``ps -e``, ``top`` and ``pgrep`` show this process under a name of at most 15 bytes."""
    with suppress(OSError), open("/proc/self/comm", "w") as file:  # there may be no /proc
        file.write(name)


def leave_no_core_dump() -> None:
    """Keep this process's memory, which holds records and passwords, out of core dumps.

    Two means, since each has a gap. A hard limit of 0 cannot be raised, and a program that takes dumps can ignore it.
    The filter leaves the registers. ``PR_SET_DUMPABLE`` would do as well, but gives the process's /proc to root: its
    user could no longer see its open files, mappings and parents.
    """
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        if hard != 0:
            resource.setrlimit(resource.RLIMIT_CORE, (_NO_DUMP, hard))
        with open("/proc/self/coredump_filter", "w") as file:
            file.write("0")
    except (OSError, ValueError) as error:
        logger.warning("cannot restrict core dumps: one of this process could hold records and passwords: %s", error)
