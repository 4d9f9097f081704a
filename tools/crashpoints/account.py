"""What a victim says of itself before it dies: what it is about to append, what it has appended, and where it dies.

It is told over a pipe, one line a message, so that it is known to the last word that came before the death.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

Records = list[tuple[int, str]]
"""Records as (partition, value)."""


class Account:
    """The victim's side of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def will_append(self, records: Records) -> None:
        """Say which records the next call is to append."""
        self._say({"will": records})

    def has_appended(self) -> None:
        """Say that the call has returned."""
        self._say({"did": True})

    def dies(self, steps: int, place: str) -> None:
        """Say where it ends, after so many steps."""
        self._say({"steps": steps, "place": place})

    def failed(self, traceback: str) -> None:
        """Say that it ends by an error of its own."""
        self._say({"error": traceback})

    def _say(self, message: object) -> None:
        os.write(self._descriptor, json.dumps(message).encode() + b"\n")


@dataclass
class Told:
    """The survivor's side: all that the victim said.

    Attributes:
        known: records that it knew to be in, in their order.
        doubtful: those of the call that it died in: the first ones may be in.
        steps: that it ran.
        place: before which instruction it died.
        error: its traceback, if it ended by an error of its own.
    """

    known: Records = field(default_factory=list)
    doubtful: Records = field(default_factory=list)
    steps: int = 0
    place: str = ""
    error: str = ""


def read_account(descriptor: int) -> Told:
    """Read what a victim said, to its death."""
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
