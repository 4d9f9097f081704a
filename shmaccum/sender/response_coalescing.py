"""How long a sender whose nodes are all busy lets answers gather before it looks for them.

To wake up for a single answer costs more than to deal with it: other processes have had the processor meanwhile, and
its caches. There is no hurry either, as long as the nodes have requests left to go on with. So the sender takes a nap
that is as long as to find about half of what is under way answered. How long that is shows in what it found the last
time; at most `LONGEST_NAP_MS`, for nodes may be slow and different.
"""

from __future__ import annotations

from typing import Final

LONGEST_NAP_MS: Final = 2.0
_SHORTEST_NAP_MS: Final = 0.02
"""Falling asleep and waking up take longer than anything below."""


class ResponseCoalescing:
    """The naps of one sender.

    Attributes:
        next_ms: how long the next one is to be; 0 for none.
    """

    def __init__(self) -> None:
        self.next_ms = 0.0

    def learn(self, answered: int, under_way: int) -> None:
        """Make the next nap longer or shorter.

        Args:
            answered: batches that were answered by the end of one.
            under_way: batches that were under way, those among them.
        """
        if 4 * answered > 3 * under_way:
            self.next_ms /= 2  # before long the nodes have nothing to do
            if self.next_ms < _SHORTEST_NAP_MS:
                self.next_ms = 0.0
        elif 2 * answered < under_way:
            self.next_ms = min(self.next_ms * 1.25 + _SHORTEST_NAP_MS, LONGEST_NAP_MS)
