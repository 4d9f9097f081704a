"""Free loopback ports that stay reserved while their broker is down.

The kernel assigns ports of its ephemeral range to outgoing connections. A port from there (by binding to port 0) can be
in use when a killed broker restarts on it. The kernel never assigns ports below that range.

A reserved port has no listener until its broker listens, and while a killed broker is down. So each reserved port is
marked, and not given again while the process that got it lives. The mark is a socket with a name in the kernel's
abstract namespace, which belongs to the network namespace, as ports do, and disappears with the process.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_LOWEST: Final = 10_000
_CHANCE: Final = random.SystemRandom()
"""Not the shared generator, which tests seed: another process with the same seed would get the same ports."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_marks: Final[list[socket.socket]] = []
"""Of the ports that this process has reserved."""


def free_port() -> int:
    """Return a port of 127.0.0.1 without a listener, and not reserved by a process that still runs."""
    highest = int(_EPHEMERAL.read_text().split()[0])
    while True:
        port = _CHANCE.randrange(_LOWEST, highest)
        if _is_free(port) and _mark(port):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: what remains of closed connections does not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _mark(port: int) -> bool:
    """Mark a port as given; False if it is."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0shmaccum-port-{port}")
    except OSError:
        mark.close()
        return False
    _marks.append(mark)
    return True
