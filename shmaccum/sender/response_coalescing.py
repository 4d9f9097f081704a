"""Adaptive wait that lets several responses arrive before the sender wakes.

Waking for a single response costs more than handling it: other processes have used the processor and its caches
meanwhile. Delay is free while every broker still has a request in flight. So the sender naps until about half of the
batches in flight are answered. It adapts the nap to what the last one found, up to `LONGEST_NAP_MS`, since brokers
can be slow and can differ.
"""

from __future__ import annotations

import time
from typing import Final

LONGEST_NAP_MS: Final = 2.0
_SHORTEST_NAP_MS: Final = 0.02
"""A shorter nap costs less than falling asleep and waking."""


class ResponseCoalescing:
    """Adapts the naps of one sender.

    Attributes:
        next_ms: milliseconds of the next nap; 0 for none.
    """

    def __init__(self) -> None:
        self.next_ms = 0.0

    def nap(self, timeout_ms: float) -> None:
        """Nap before the wait for responses, if the nap is shorter than that wait.

        Args:
            timeout_ms: most milliseconds that the sender is about to wait.
        """
        if 0 < self.next_ms < timeout_ms:
            time.sleep(self.next_ms / 1000)

    def learn(self, answered: int, under_way: int) -> None:
        """Make the next nap longer or shorter.

        Args:
            answered: batches answered by the end of the last nap.
            under_way: batches that were in flight, including those.
        """
        if 4 * answered > 3 * under_way:
            self.next_ms /= 2  # a longer nap would leave brokers without a request
            if self.next_ms < _SHORTEST_NAP_MS:
                self.next_ms = 0.0
        elif 2 * answered < under_way:
            self.next_ms = min(self.next_ms * 1.25 + _SHORTEST_NAP_MS, LONGEST_NAP_MS)
