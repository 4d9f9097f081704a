"""The plan is a function of the seed, and does what the rates say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tools.stress.plan import LONGEST_STOP_S, SENDER, Deed, Event, make_plan


def plan(seed: int = 1, **changes: Any) -> list[Event]:
    rates: dict[str, float] = {"kill_producers": 5, "kill_sender": 0.5, "stop": 1}
    return make_plan(seed, 60, 8, **(rates | changes))


def test_the_seed_makes_the_plan() -> None:
    assert plan(1) == plan(1)
    assert plan(1) != plan(2)


def test_rates() -> None:
    events = plan()
    assert Counter((event.deed, event.victim == SENDER) for event in events if event.deed is Deed.KILL) == {
        (Deed.KILL, False): 300,
        (Deed.KILL, True): 30,
    }
    stops = [event for event in events if event.deed is Deed.STOP]
    assert len(stops) == 60
    assert all(0 < event.duration_s <= LONGEST_STOP_S for event in stops)
    assert {event.victim for event in events} == {SENDER, *range(8)}
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    assert 0 < events[0].at_s < events[-1].at_s < 60


def test_the_spared_are_not_killed() -> None:
    events = plan(spared=2)
    assert {event.victim for event in events if event.deed is Deed.KILL} == {SENDER, *range(2, 8)}
    assert not [event for event in plan(spared=8, kill_sender=0) if event.deed is Deed.KILL]


def test_no_rate_no_event() -> None:
    assert plan(kill_producers=0, kill_sender=0, stop=0) == []


def test_everyone_is_terminated_alike() -> None:
    events = plan(kill_producers=0, kill_sender=0, stop=0, terminate=2)
    assert len(events) == 120
    assert {(event.victim, event.deed) for event in events} == {(who, Deed.TERMINATE) for who in [SENDER, *range(8)]}
