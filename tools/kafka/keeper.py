"""Runs a command for at most its owner's life: ``python keeper.py OWNER COMMAND ...``, started by the owner.

The owner can be killed at any moment. The kernel's "parent death signal" follows the starting *thread*, and threads
come and go; the owner's forked children would keep a pipe open. So this small process watches the owner through a
pidfd, and kills the command when the owner has exited. It is also the command's single-threaded parent, whose death
signal is exact. It prints the command's pid on standard output; the command's own output goes to standard error.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    owner, command = int(sys.argv[1]), sys.argv[2:]
    owner_end = os.pidfd_open(owner)
    if os.getppid() != owner:
        sys.exit(f"process {owner} died before it was watched")  # the number can be another process's by now
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:
            os.dup2(2, 1)
            os.execvp(command[0], command)
        os._exit(1)
    print(child, flush=True)
    ended = select.poll()
    for end in (owner_end, os.pidfd_open(child)):
        ended.register(end, select.POLLIN)
    ended.poll()
    os.kill(child, signal.SIGKILL)  # it is not waited for yet, so the number is its own
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
