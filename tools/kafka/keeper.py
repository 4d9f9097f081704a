"""Runs a command for at most its owner's life: ``python keeper.py OWNER COMMAND ...``, started by the owner.

The owner can be killed at any moment. The kernel's "parent death signal" follows the starting *thread*, and threads
come and go; the owner's forked children would keep a pipe open. So this small process watches the owner through a
pidfd, and kills the command when the owner has exited. It is also the command's single-threaded parent, whose death
signal is exact. It prints the command's pid on standard output; the command's own output goes to standard error. The
exit status is the command's, or 128 plus the number of the signal that killed it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> int:
    owner, command = int(sys.argv[1]), sys.argv[2:]
    try:
        owner_end = os.pidfd_open(owner)
    except ProcessLookupError:
        return 1
    if os.getppid() != owner:  # it died before it was watched, and the number is another's by now
        return 1
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:
            os.dup2(2, 1)
            try:
                os.execvp(command[0], command)
            except OSError as error:
                os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(1)
    print(child, flush=True)
    child_end = os.pidfd_open(child)
    ended = select.poll()
    ended.register(owner_end, select.POLLIN)
    ended.register(child_end, select.POLLIN)
    if all(descriptor != child_end for descriptor, _ in ended.poll()):
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    sys.exit(main())
