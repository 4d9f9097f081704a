"""Messages that wait for their topic keep their order, whatever keeps them waiting."""

from __future__ import annotations

import pytest

from shmaccum._core import Message, Reports
from shmaccum.compat.confluent import parking as confluent_parking
from shmaccum.compat.confluent.parking import Parking, Produced
from shmaccum.errors import BufferExhaustedError, InvalidTopicError, KafkaTimeoutError


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_parking, "PAUSE_S", 0.0)


class Scene:
    """A parking whose topics answer as the test says."""

    def __init__(self, timeout_s: float = 60.0) -> None:
        self.errors: dict[str, Exception] = {}
        self.sent: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.parking = Parking(self._send, self._fail, timeout_s)

    def _send(self, message: Produced) -> None:
        if message.delivery.topic() in self.errors:
            raise self.errors[message.delivery.topic()]
        self.sent.append(self.name(message))

    def _fail(self, message: Produced, error: Exception) -> None:
        self.failed.append((self.name(message), type(error).__name__))

    def name(self, message: Produced) -> str:
        value = message.delivery.value()
        assert value is not None
        return value.decode()

    def add(self, topic: str, *names: str) -> None:
        for name in names:
            message = Message(Reports(str, only_errors=False), topic, None, name.encode(), None, None)
            self.parking.add(Produced(message, -1, 0, None))


@pytest.mark.parametrize("error", [KafkaTimeoutError(), BufferExhaustedError()])
def test_messages_stay_in_order_until_they_can_be_sent(error: Exception) -> None:
    scene = Scene()
    scene.errors["t"] = error
    scene.add("t", "1", "2")
    scene.add("known", "a")
    scene.parking.retry()
    assert (scene.sent, scene.failed, scene.parking.holds("t"), scene.parking.holds("known")) == (
        *(["a"], []),
        *(True, False),
    )
    scene.add("t", "3")
    scene.errors.clear()
    scene.parking.retry()
    assert (scene.sent, bool(scene.parking)) == (["a", "1", "2", "3"], False)


def test_a_message_that_waits_too_long_fails() -> None:
    scene = Scene(timeout_s=0.0)
    scene.errors["t"] = KafkaTimeoutError()
    scene.add("t", "1", "2")
    scene.parking.retry()
    assert scene.failed == [("1", "KafkaTimeoutError"), ("2", "KafkaTimeoutError")]
    assert not scene.parking


def test_a_final_error_fails_at_once() -> None:
    scene = Scene()
    scene.errors["t"] = InvalidTopicError()
    scene.add("t", "1")
    scene.parking.retry()
    assert scene.failed == [("1", "InvalidTopicError")]


def test_what_is_taken_is_not_sent() -> None:
    scene = Scene()
    scene.add("t", "1", "2")
    assert [scene.name(message) for message in scene.parking.take()] == ["1", "2"]
    scene.parking.retry()
    assert (scene.sent, bool(scene.parking)) == ([], False)
