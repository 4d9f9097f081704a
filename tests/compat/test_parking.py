"""Messages that wait for their topics, and a signal's handler that comes in between."""

from __future__ import annotations

import itertools
import sys
from types import FrameType

from shmaccum._core import Message, Reports
from shmaccum.compat.confluent.errors import kafka_error
from shmaccum.compat.confluent.parking import Parking, Produced


def sent_despite_a_handler(moment: int) -> tuple[list[bytes], bool]:
    """Add a message, and flush in a signal's handler at a moment: after that many calls of C functions.

    Return what was sent in the end, and whether the handler came.
    """
    sent: list[bytes] = []
    parking = Parking(lambda each: sent.append(each.delivery.value()), lambda each: True, lambda *_: None, 10.0)
    message = Produced(Message(Reports(kafka_error, False), "t", None, b"value", None, None), 0, 0, None)
    left = moment

    def handler(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        left -= event == "c_return"
        if left < 0:
            sys.setprofile(None)
            parking.retry(flushes=True)

    sys.setprofile(handler)
    with parking.sending(message):
        parking.add(message)
    sys.setprofile(None)
    for _ in range(2):
        parking._next = 0.0
        parking.retry()
    assert not parking
    return sent, left < 0


def test_no_message_is_lost_to_a_signals_handler_that_flushes() -> None:
    """Whenever it comes while one is added: there can be an empty queue then."""
    for moment in itertools.count():
        sent, came = sent_despite_a_handler(moment)
        assert sent == [b"value"], f"after a handler at moment {moment}"
        if not came:
            break
    assert moment > 5
