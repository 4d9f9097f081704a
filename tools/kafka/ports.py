"""Free ports on loopback that stay free while the broker that had them is down.

The kernel gives ports of its ephemeral range to whoever connects, so one taken from there (by binding to port 0) may be
in use when a killed broker is to come back to it. Those below the range it gives to nobody.
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


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on; by chance, so that others who ask now get another."""
    highest = int(_EPHEMERAL.read_text().split()[0])
    while True:
        port = _CHANCE.randrange(_LOWEST, highest)
        with socket.socket() as probe:
            # As servers do: what remains of closed connections does not make a port taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
