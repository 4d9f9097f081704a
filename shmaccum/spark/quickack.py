"""The connection of a Spark Python worker to its JVM: what comes in is acknowledged at once.

By default Spark talks to its workers by TCP, and writes the end of a task's rows as a packet of its own, of a few
bytes. The JVM's side holds such a packet back until what was written before is acknowledged (Nagle's algorithm). The
worker's side puts an acknowledgement off by up to 40 ms once the two have taken turns, as they have from a worker's
second task on, in the hope that an answer takes it along. But there is no answer before the end of the rows is known,
and until it comes, nobody works.

``TCP_QUICKACK`` ends that until the worker answers the next time, so it is set in every task. Nothing else of the
connection changes, and nothing on Spark's side.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import Final

_LOOPBACK: Final = ("127.0.0.1", "::1")
"""What Spark has its workers listen at."""


def acknowledge_at_once() -> None:
    """Have this process's TCP connections within the host acknowledge what comes until it has written again.

    Spark does not say which connection is its own. A worker has hardly another, and where it has, that is acknowledged
    sooner, too.
    """
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    if _is_within_this_host(connection):
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except OSError:
            continue  # closed since, or not connected


def _is_within_this_host(connection: socket.socket) -> bool:
    return (
        connection.family in (socket.AF_INET, socket.AF_INET6)
        and connection.type == socket.SOCK_STREAM
        and connection.getpeername()[0] in _LOOPBACK
    )
