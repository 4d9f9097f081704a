"""A victim's account before its death: the records of its next call, accepted records, and where it dies.

It writes one message a line to a pipe, so that the survivor gets all messages up to the death.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Records = list[tuple[int, str]]
"""Records as (partition, value)."""


class Account:
    """The victim's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def is_ready(self) -> None:
        """Report that the operation can begin."""
        self._say({"ready": True})

    def will_append(self, records: Records) -> None:
        """Announce the records that the next call will append."""
        self._say({"will": records})

    def has_appended(self) -> None:
        """Report that the call has returned."""
        self._say({"did": True})

    def dies(self, steps: int, place: str) -> None:
        """Report where it dies, and after how many steps."""
        self._say({"pid": os.getpid(), "steps": steps, "place": place})

    def failed(self, traceback: str) -> None:
        """Report that it ends with an error of its own."""
        self._say({"error": traceback})

    def _say(self, message: object) -> None:
        os.write(self._descriptor, json.dumps(message).encode() + b"\n")


@dataclass
class Told:
    """The survivor's end: everything the victim reported.

    Attributes:
        is_ready: whether its operation can begin.
        known: records that it knew to be accepted, in order.
        doubtful: records of the call in which it died; the first ones can be accepted.
        pid: of the process that died or was stopped: it can be the victim's child.
        steps: number of steps that it ran.
        place: the instruction before which it died or was stopped.
        error: its traceback, if it ended with an error of its own.
    """

    is_ready: bool = False
    known: Records = field(default_factory=list)
    doubtful: Records = field(default_factory=list)
    pid: int = 0
    steps: int = 0
    place: str = ""
    error: str = ""


class Reader:
    """Reads a victim's messages.

    Args:
        descriptor: of the pipe; closed at its end.

    Attributes:
        told: what it has reported.
    """

    def __init__(self, descriptor: int) -> None:
        self.told = Told()
        self._descriptor = descriptor
        self._rest = b""

    def read(self, timeout_s: float | None) -> bool:
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
            self._note(json.loads(line))
        return True

    def _note(self, message: Mapping[str, Any]) -> None:
        told = self.told
        if "ready" in message:
            told.is_ready = True
        elif "will" in message:
            told.doubtful = [(partition, value) for partition, value in message["will"]]
        elif "did" in message:
            told.known += told.doubtful
            told.doubtful = []
        elif "error" in message:
            told.error = message["error"]
        else:
            told.pid, told.steps = message["pid"], message["steps"]
            told.place = told.place or message["place"]
