"""How long a busy sender lets answers gather."""

from __future__ import annotations

from shmaccum.sender.response_coalescing import LONGEST_NAP_MS, ResponseCoalescing


def nap_with(coalescing: ResponseCoalescing, answers_a_ms: float, under_way: int = 20) -> float:
    """Sleep while responses arrive at a steady rate; return the share found answered at the last wake-up."""
    for _ in range(200):
        answered = min(under_way, max(1, int(coalescing.next_ms * answers_a_ms)))
        coalescing.learn(answered, under_way)
    return answered / under_way


def test_about_half_of_what_is_under_way_is_found_answered() -> None:
    coalescing = ResponseCoalescing()
    for answers_a_ms in (200, 20, 10, 100, 200):
        assert 0.4 <= nap_with(coalescing, answers_a_ms) <= 0.75


def test_slow_nodes_are_not_waited_for_by_a_nap() -> None:
    coalescing = ResponseCoalescing()
    nap_with(coalescing, 0.1)
    assert coalescing.next_ms == LONGEST_NAP_MS


def test_the_first_look_is_at_once() -> None:
    assert ResponseCoalescing().next_ms == 0
