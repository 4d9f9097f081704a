"""Plans which processes are killed, terminated or stopped, and when, from seed and rates only."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

SENDER: Final = -1
"""The victim that is the sender; producers are numbered from 0."""
LONGEST_STOP_S: Final = 1.0
SHORTEST_STOP_S: Final = 0.02


class Deed(Enum):
    """An action on a victim."""

    KILL = "kill"
    STOP = "stop"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """One action.

    Attributes:
        at_s: seconds since the beginning.
        victim: number of a producer's place, or `SENDER`.
        deed: kill, terminate, or stop.
        duration_s: of a stop, until it is continued.
    """

    at_s: float
    victim: int
    deed: Deed
    duration_s: float = 0.0


def make_plan(
    seed: int,
    seconds: float,
    producers: int,
    *,
    kill_producers: float,
    kill_sender: float,
    stop: float,
    terminate: float = 0.0,
    spared: int = 0,
) -> list[Event]:
    """Return the events in order of time: of each kind as many as its rate requires, at random times.

    Args:
        seed: equal seeds make equal plans.
        seconds: latest time of an event.
        producers: number of places.
        kill_producers: producers to kill per second.
        kill_sender: senders to kill per second.
        stop: processes to stop per second: the sender as often as each producer.
        terminate: processes to ask to end, per second: likewise.
        spared: number of first producers that are stopped, but never killed.
    """
    chance = random.Random(seed)
    events: list[Event] = []
    if spared < producers:
        events += [
            Event(at, chance.randrange(spared, producers), Deed.KILL) for at in _times(chance, kill_producers, seconds)
        ]
    events += [Event(at, SENDER, Deed.KILL) for at in _times(chance, kill_sender, seconds)]
    events += [
        Event(at, chance.randrange(SENDER, producers), Deed.STOP, chance.uniform(SHORTEST_STOP_S, LONGEST_STOP_S))
        for at in _times(chance, stop, seconds)
    ]
    events += [
        Event(at, chance.randrange(SENDER, producers), Deed.TERMINATE) for at in _times(chance, terminate, seconds)
    ]
    return sorted(events, key=lambda event: event.at_s)


def _times(chance: random.Random, rate: float, seconds: float) -> list[float]:
    """Return random times, as many as the rate requires."""
    return [chance.uniform(0, seconds) for _ in range(round(rate * seconds))]
