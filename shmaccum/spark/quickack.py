"""Disables delayed acknowledgement on a Spark Python worker's connection to its JVM.

By default Spark talks to its workers by TCP, and writes the end of a task's rows as a small packet. Nagle's
algorithm on the JVM's side holds that packet until the data before it is acknowledged. From its second task on, the
worker's side delays its acknowledgement by up to 40 ms, to send it along with a response. But the worker only responds
after the end of the rows, so both sides wait.

``TCP_QUICKACK`` disables the delay until the worker writes the next time, so every task sets it. Nothing else of the
connection changes, and nothing on Spark's side.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import Final

_LOOPBACK: Final = ("127.0.0.1", "::1")
"""Addresses at which Spark's workers listen."""


def acknowledge_at_once() -> None:
    """Set TCP_QUICKACK on this process's TCP connections within the host; it lasts until the process writes again.

    Spark does not tell which connection is its own. A worker rarely has another one, and quick acknowledgement does
    not harm that.
    """
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    if _is_within_this_host(connection):
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except OSError:
            continue  # closed in the meantime, or not connected


def _is_within_this_host(connection: socket.socket) -> bool:
    return (
        connection.family in (socket.AF_INET, socket.AF_INET6)
        and connection.type == socket.SOCK_STREAM
        and connection.getpeername()[0] in _LOOPBACK
    )
