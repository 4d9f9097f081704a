"""How long a busy sender lets answers gather."""

from __future__ import annotations

from shmaccum.sender.naps import LONGEST_NAP_MS, Naps


def nap_with(naps: Naps, answers_a_ms: float, under_way: int = 20) -> float:
    """Take naps while so many answers come in a millisecond; return how much of what is under way is found at last."""
    for _ in range(200):
        answered = min(under_way, max(1, int(naps.next_ms * answers_a_ms)))
        naps.learn(answered, under_way)
    return answered / under_way


def test_about_half_of_what_is_under_way_is_found_answered() -> None:
    naps = Naps()
    for answers_a_ms in (200, 20, 10, 100, 200):
        assert 0.4 <= nap_with(naps, answers_a_ms) <= 0.75


def test_slow_nodes_are_not_waited_for_by_a_nap() -> None:
    naps = Naps()
    nap_with(naps, 0.1)
    assert naps.next_ms == LONGEST_NAP_MS


def test_the_first_look_is_at_once() -> None:
    assert Naps().next_ms == 0
