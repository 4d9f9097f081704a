"""Free ports on loopback that stay free while the broker that had them is down.

The kernel gives ports of its ephemeral range to whoever connects, so one taken from there (by binding to port 0) may be
in use when a killed broker is to come back to it. Those below the range it gives to nobody.

Between the choice of a port and the moment at which a broker listens there, and while a killed one is not back, nobody
does. So a port that was given is marked, and not given again while the process that got it lives: by a socket with a
name of the kernel's abstract namespace, which is the network's, as the ports are, and goes with the process.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_LOWEST: Final = 10_000
_CHANCE: Final = random.SystemRandom()
"""Not the one that tests begin anew with a seed of theirs: who does the same elsewhere would get the same ports."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_marks: Final[list[socket.socket]] = []
"""Of the ports that this process has been given."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, and that no process has been given that still runs."""
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
