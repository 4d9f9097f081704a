"""What a sender does not take over from the program that started it, and what a crash of it does not give away."""

from __future__ import annotations

import logging
import resource
import signal
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_IGNORED_BY_PYTHON: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Python ignores them itself, to raise errors instead."""
_FILTER: Final = Path("/proc/self/coredump_filter")
_NO_DUMP: Final = 1
"""As RLIMIT_CORE: too little for any file, and the kernel's word for not starting a program that takes dumps either,
which 0 is not (``coredump_pipe`` in Linux's fs/coredump.c)."""


def use_default_signals() -> None:
    """Block no signal, and ignore none: a program can have handed down either, over fork and exec.

    A sender that blocks SIGTERM cannot be stopped, and one that ignores SIGCHLD or SIGHUP differs from its neighbour.
    """
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def leave_no_core_dump() -> None:
    """Keep this process's memory, which holds records and passwords, out of core dumps.

    Two means, since each has a gap. The limit does not hold where it has been lowered to 0 for good and a program takes
    the dumps, which then may or may not go by it. The filter leaves the registers. ``PR_SET_DUMPABLE`` would do it as
    well, but gives the process's /proc to root: its user could no longer see what it has open or mapped, nor whose
    descendant it is.
    """
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        if hard != 0:
            resource.setrlimit(resource.RLIMIT_CORE, (_NO_DUMP, hard))
        _FILTER.write_text("0")
    except (OSError, ValueError) as error:
        logger.warning("a core dump of this process could hold records and passwords: %s", error)
