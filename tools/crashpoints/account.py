"""A victim's account before its death: the records of its next call, accepted records, and where it dies.

It writes one message a line to a pipe, so that the survivor gets all messages up to the death.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

Records = list[tuple[int, str]]
"""Records as (partition, value)."""


class Account:
    """The victim's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def will_append(self, records: Records) -> None:
        """Announce the records that the next call will append."""
        self._say({"will": records})

    def has_appended(self) -> None:
        """Report that the call has returned."""
        self._say({"did": True})

    def dies(self, steps: int, place: str) -> None:
        """Report where it dies, and after how many steps."""
        self._say({"steps": steps, "place": place})

    def failed(self, traceback: str) -> None:
        """Report that it ends with an error of its own."""
        self._say({"error": traceback})

    def _say(self, message: object) -> None:
        os.write(self._descriptor, json.dumps(message).encode() + b"\n")


@dataclass
class Told:
    """The survivor's end: everything the victim reported.

    Attributes:
        known: records that it knew to be accepted, in order.
        doubtful: records of the call in which it died; the first ones can be accepted.
        steps: number of steps that it ran.
        place: the instruction before which it died.
        error: its traceback, if it ended with an error of its own.
    """

    known: Records = field(default_factory=list)
    doubtful: Records = field(default_factory=list)
    steps: int = 0
    place: str = ""
    error: str = ""


def read_account(descriptor: int) -> Told:
    """Read a victim's messages up to its death."""
    told = Told()
    with os.fdopen(descriptor) as lines:
        for line in lines:
            message = json.loads(line)
            if "will" in message:
                told.doubtful = [(partition, value) for partition, value in message["will"]]
            elif "did" in message:
                told.known += told.doubtful
                told.doubtful = []
            elif "error" in message:
                told.error = message["error"]
            else:
                told.steps, told.place = message["steps"], message["place"]
    return told
