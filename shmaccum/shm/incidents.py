"""Incidents: errors of brokers and the network, for all users of the slab.

A ring of `INCIDENTS` entries. Only the sender writes them; any process reads them without a lock. A completion, or the
header of a failed batch, has an incident's number. A reader finds its text unless `INCIDENTS` others have been noted
since. Equal text of the same error is one incident, which counts how often it happened: a thousand batches refused for
one reason use one entry, under any sender. So the ring is a log of distinct errors, like Aeron's ``DistinctErrorLog``.

* **Writing**: the number is cleared first and stored last, so a reader that finds the same number before and after has
  read one incident. A sender's death leaves number 0 there; the next sender uses the entry after it.
* **Lasting**: an incident *lasts* while a broker cannot be connected to. A new sender ends all that lasted.
* **Hostile text**: brokers can send any text; `printable` escapes and cuts it. Readers skip damaged entries.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from shmaccum._core import INCIDENTS, WORD, Geometry, Incident, Partition, Super, memory_fence
from shmaccum.errors import KafkaError, ProducerClosedError, error_for_code, printable
from shmaccum.shm.layout import CODE_MASK, error_of
from shmaccum.shm.validation import LAST_MS

if TYPE_CHECKING:
    from shmaccum.shm.slab import Slab

RECENT_MS: Final = 300_000
"""How long an ended incident can explain a failure: longer than the default ``delivery.timeout.ms``."""
_OF_PARTITION: Final = 1 << 32
_OF_NODE: Final = 2 << 32
_PLACE_MASK: Final = (1 << 32) - 1
_SIGN: Final = 1 << 31


class IncidentInfo(NamedTuple):
    """A snapshot of an incident.

    Attributes:
        error: the class of the error.
        text: the message of the network or the broker.
        first_ms, last_ms: wall-clock milliseconds of its first and its last occurrence; the first since it last ended.
        lasts: whether it lasts, as far as the sender knows.
        count: how often it happened.
        partition: entry of the partition where it last happened; None if it was not about one.
        node: id of the broker where it last happened; None if that is unknown.
        number: by which a failed batch or a partition names it; no later one has it.
    """

    error: type[KafkaError]
    text: str
    first_ms: int
    last_ms: int
    lasts: bool
    count: int = 1  # type: ignore[assignment]  # a tuple's method of this name goes
    partition: int | None = None
    node: int | None = None
    number: int = 0

    def __str__(self) -> str:
        what = f"{self.error.__name__}: {self.text or self.error.meaning()}"
        when = f"since {_time(self.first_ms)}, last at" if self.lasts else "at"
        return f"{what} ({when} {_time(self.last_ms)})"


class Incidents:
    """The incidents of a slab: its sender notes them, every process reads them."""

    def __init__(self, slab: Slab) -> None:
        self._words = slab.words
        self._buffer = slab.buffer
        self._geometry = slab.geometry
        self._known: dict[tuple[int, str], int] = {}
        """This sender's incidents in the ring, oldest first, by code and text."""

    # --- the sender's half ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin as a new sender: end the incidents that lasted for the one before, and go on counting all."""
        for entry in range(INCIDENTS):
            self._words[self._geometry.incident(entry) + Incident.LASTS] = 0
        found = sorted(incidents(self._words, self._geometry), key=lambda each: each.number)
        self._known = {(each.error.code & CODE_MASK, each.text): each.number for each in found}

    def note(
        self,
        error: type[KafkaError],
        text: str,
        *,
        lasts: bool = False,
        since_ms: int = 0,
        partition: int | None = None,
        node: int | None = None,
    ) -> int:
        """Note an incident; return its number. The text is escaped and cut here.

        It lasts until `end` if ``lasts``. It began at ``since_ms``, in wall-clock milliseconds, if not now. It is about
        a partition, by its entry, or a broker, by its id, if any.
        """
        words, now_ms = self._words, _now_ms()
        text = printable(text)
        key = (error.code & CODE_MASK, text)
        place = 0
        if partition is not None:
            place = _OF_PARTITION | partition
        elif node is not None:
            place = _OF_NODE | node & _PLACE_MASK
        number = self._known.get(key, 0)
        if number > words[Super.INCIDENTS] - INCIDENTS and number:
            at = self._geometry.incident(number)
            if not words[at + Incident.LASTS]:
                words[at + Incident.FIRST_MS] = since_ms or now_ms
            words[at + Incident.LAST_MS] = now_ms
            words[at + Incident.LASTS] = int(lasts)
            words[at + Incident.PLACE] = place
            words[at + Incident.COUNT] += 1
            return number
        number = words[Super.INCIDENTS] + 1
        words[Super.INCIDENTS] = number
        self._write(self._geometry.incident(number), number, key[0], text, since_ms or now_ms, now_ms, lasts, place)
        self._known.pop(key, None)
        self._known[key] = number
        if len(self._known) > INCIDENTS:
            del self._known[next(iter(self._known))]
        return number

    def note_of_partition(self, error: type[KafkaError], text: str, partition: int) -> int:
        """Note an incident that is about a partition, in its entry, too; return its number. See `note`."""
        number = self.note(error, text, partition=partition)
        at = self._geometry.partition(partition)
        self._words[at + Partition.ERROR] = number
        self._words[at + Partition.ERROR_MS] = _now_ms()
        return number

    def end(self, number: int) -> None:
        """Note that an incident no longer lasts."""
        at = self._geometry.incident(number)
        if number and self._words[at + Incident.NUMBER] == number:
            self._words[at + Incident.LASTS] = 0

    def last_of(self, error: type[KafkaError]) -> int:
        """Return the number of this sender's newest incident of a class, 0 if there is none."""
        code = error.code & CODE_MASK
        return max((number for (known, _), number in self._known.items() if known == code), default=0)

    def let_in(self) -> None:
        """Note that a broker has accepted a connection of ours."""
        if not self._words[Super.LET_IN_MS]:
            self._words[Super.LET_IN_MS] = _now_ms()

    @property
    def has_been_let_in(self) -> bool:
        """Whether a broker has ever accepted a connection of this slab's senders."""
        return bool(self._words[Super.LET_IN_MS])

    def note_log(self, text: str) -> None:
        """Note where the sender's log is, or why there is none."""
        now_ms = _now_ms()
        self._write(self._geometry.sender_log(), 1, 0, printable(text), now_ms, now_ms, False, 0)

    def _write(
        self, at: int, number: int, code: int, text: str, first_ms: int, last_ms: int, lasts: bool, place: int
    ) -> None:
        words = self._words
        words[at + Incident.NUMBER] = 0
        memory_fence()  # no reader sees a number with the words of another incident
        data = text.encode()
        start = (at + Incident.TEXT) * WORD
        self._buffer[start : start + len(data)] = data
        words[at + Incident.CODE] = code
        words[at + Incident.FIRST_MS] = first_ms
        words[at + Incident.LAST_MS] = last_ms
        words[at + Incident.LASTS] = int(lasts)
        words[at + Incident.LENGTH] = len(data)
        words[at + Incident.COUNT] = 1
        words[at + Incident.PLACE] = place
        memory_fence()
        words[at + Incident.NUMBER] = number

    # --- the readers' half ----------------------------------------------------------------------------

    def find(self, number: int) -> IncidentInfo | None:
        """Return the incident of a number; None if it is 0 or no longer kept."""
        return read(self._words, self._geometry.incident(number), number)

    def log(self) -> str:
        """Return where the sender's log is, or why there is none; empty while unknown."""
        return sender_log(self._words, self._geometry)

    def current(self) -> IncidentInfo | None:
        """Return the newest recent incident that lasts, else the newest recent one.

        Raises ProducerClosedError: the process has left the slab.
        """
        try:
            now_ms, kept = _now_ms(), incidents(self._words, self._geometry)
        except ValueError as error:  # of a released memoryview
            raise ProducerClosedError("The producer has been closed meanwhile.") from error
        # By the distance: a time far ahead is of a clock that was set back since, and would count until then.
        found = [each for each in kept if abs(now_ms - each.last_ms) < RECENT_MS]
        lasting = [each for each in found if each.lasts]
        return (lasting or found)[0] if found else None


def incidents(words: memoryview, geometry: Geometry) -> list[IncidentInfo]:
    """Read all incidents that are kept, the latest first."""
    found = []
    for entry in range(INCIDENTS):
        at = geometry.incident(entry)
        number = words[at + Incident.NUMBER]
        incident = read(words, at, number) if number % INCIDENTS == entry else None
        if incident is not None:
            found.append(incident)
    return sorted(found, key=lambda each: (each.last_ms, each.number), reverse=True)


def sender_log(words: memoryview, geometry: Geometry) -> str:
    """Read where the sender's log is, or why there is none; empty while unknown."""
    found = read(words, geometry.sender_log(), 1)
    return found.text if found is not None else ""


def read(words: memoryview, at: int, number: int) -> IncidentInfo | None:
    """Read an entry; None if it has another number, or is damaged."""
    if not number or words[at + Incident.NUMBER] != number:
        return None
    code, length = words[at + Incident.CODE], words[at + Incident.LENGTH]
    first_ms, last_ms = words[at + Incident.FIRST_MS], words[at + Incident.LAST_MS]
    data = words[at + Incident.TEXT : at + Incident.length].tobytes()[:length]
    lasts, count, place = words[at + Incident.LASTS] != 0, words[at + Incident.COUNT], words[at + Incident.PLACE]
    memory_fence()  # the number is read again after the words
    if words[at + Incident.NUMBER] != number or max(first_ms, last_ms) >= LAST_MS or code > CODE_MASK:
        return None
    error = error_of(code) or error_for_code(0)
    text = printable(data.decode(errors="replace"))
    partition = place & _PLACE_MASK if place & ~_PLACE_MASK == _OF_PARTITION else None
    node = (place & _PLACE_MASK ^ _SIGN) - _SIGN if place & ~_PLACE_MASK == _OF_NODE else None
    return IncidentInfo(error, text, first_ms, last_ms, lasts, count, partition, node, number)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _time(wall_ms: int) -> str:
    from datetime import datetime  # which a process without an incident does not import

    return datetime.fromtimestamp(wall_ms / 1000).astimezone().isoformat(timespec="milliseconds")
