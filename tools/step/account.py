"""What a victim reports before its death, through a pipe: the records of its next call, and where it dies.

Each message is a line, and sets fields of `Told`, so that the survivor gets all of them up to the death.
"""

from __future__ import annotations

import json
import os
import select
from typing import Any

Records = list[tuple[int, str]]
"""Records as (partition, value)."""


class Account:
    """The victim's end of the pipe; ``stores.c`` writes to it, too."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, **told: object) -> None:
        os.write(self._descriptor, json.dumps(told).encode() + b"\n")

    def will_append(self, records: Records) -> None:
        """Announce the records that the next call will append."""
        self.say(doubtful=records)

    def has_appended(self) -> None:
        """Report that the call has returned."""
        self.say(accepted=True)


class Told:
    """The survivor's end: everything the victim reported.

    Args:
        descriptor: of the pipe; closed at its end.

    Attributes:
        is_ready: whether its operation can begin.
        known: records that it knew to be accepted, in order.
        doubtful: records of the call in which it died; the first ones can be accepted.
        pid: of the process that died or was stopped: it can be the victim's child.
        steps: number of steps that it ran.
        place: the instruction before which it died or was first stopped.
        error: its traceback, if it ended with an error of its own.
    """

    def __init__(self, descriptor: int) -> None:
        self.is_ready = False
        self.known: Records = []
        self.doubtful: Records = []
        self.pid = self.steps = 0
        self.place = self.error = ""
        self._descriptor = descriptor
        self._rest = b""

    def read(self, timeout_s: float | None = None) -> bool:
        """Read what comes, waiting for it; return False if that was all, because the victim is dead."""
        if self._descriptor < 0:
            return False
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            return True
        text = os.read(self._descriptor, 1 << 16)
        if not text:
            os.close(self._descriptor)
            self._descriptor = -1
            return False
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            for field, value in json.loads(line).items():
                self._note(field, value)
        return True

    def _note(self, field: str, value: Any) -> None:
        if field == "accepted":
            self.known += self.doubtful
            self.doubtful = []
        elif field == "doubtful":
            self.doubtful = [(partition, text) for partition, text in value]
        elif field != "place" or not self.place:
            setattr(self, field, value)
