"""Delivery reports that wait for a poll: each message ends once, with the outcome of its record."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shmaccum._core import Callbacks, FutureRecordMetadata, Message, Part, ProduceRequestResult, Reports
from shmaccum.accumulator.append.pending_batches import call_back
from shmaccum.cluster import TopicPartition
from shmaccum.errors import RecordTooLargeError

BATCH = 7


class Scene:
    """Messages of one producer, whose records are in one batch."""

    def __init__(self, only_errors: bool = False) -> None:
        self.reports = Reports(type, only_errors)
        self.callbacks = Callbacks(call_back)
        self.result = ProduceRequestResult(TopicPartition("t", 3), BATCH, lambda: None)
        self.told: list[tuple[Any, int]] = []
        self._count = 0

    def message(self, callback: Callable[[Any, Message], Any] | None = None) -> Message:
        number = self._count

        def tell(error: Any, _: Message) -> None:
            self.told.append((error, number))

        message = Message(self.reports, "t", b"k", b"value", None, callback or tell)
        future = FutureRecordMetadata(self.result, number, 100 + number)
        self.callbacks.add(BATCH, message, future)
        message.future = future
        self._count += 1
        return message

    def complete(self, first: int, count: int, failure: type[Exception] | None = None) -> None:
        self.result.complete(Part(first, -1 if failure else 50 + first, -1, failure), count)
        self.callbacks.make_due(BATCH)
        self.callbacks.run()


steps = st.lists(
    st.sampled_from(["produce", "complete", "fail", "purge", "drop", "serve"]) | st.integers(0, 9), max_size=40
)


@given(steps, st.booleans())
def test_each_message_is_reported_once_unless_it_is_dropped(steps: list[str | int], only_errors: bool) -> None:
    """Whatever comes first counts. `waiting` is always the number of those that are not reported."""
    scene = Scene(only_errors)
    messages: list[Message] = []
    outcomes: dict[int, Any] = {}
    over: set[int] = set()
    done = at = 0
    for step in steps:
        if isinstance(step, int):
            at = step
        elif step == "produce":
            messages.append(scene.message())
        elif step in ("complete", "fail") and done < len(messages):
            failure = RecordTooLargeError if step == "fail" else None
            scene.complete(done, 1, failure)
            outcomes.setdefault(done, failure)
            done += 1
        elif step == "purge" and at < len(messages) and at not in over:
            messages[at].report("purged")
            outcomes.setdefault(at, "purged")
        elif step == "drop" and at < len(messages):
            messages[at].drop()
            over.add(at)
        elif step == "serve":
            due = outcomes.keys() - over
            assert scene.reports.serve() == len(due)
            over |= due
        in_flight = [m for number, m in enumerate(messages) if number not in outcomes and number not in over]
        assert scene.callbacks.in_flight(scene.reports) == in_flight
        assert scene.reports.waiting == len(messages) - len(over)
    told = {number: error for error, number in scene.told}
    assert len(told) == len(scene.told)
    assert told.items() <= outcomes.items()
    assert not only_errors or None not in told.values()


def test_messages_of_before_a_fork_do_not_count() -> None:
    """A child can go on with a call that its parent began: it drops that message, and begins another."""
    scene = Scene()
    complete, dropped = scene.message(), scene.message()
    scene.reports.clear()
    scene.message()
    dropped.drop()
    scene.complete(0, 1)
    assert not complete.is_pending
    assert (scene.reports.waiting, scene.reports.serve(), scene.told) == (1, 0, [])


def test_a_refusal_in_its_own_call_is_left_to_the_caller() -> None:
    """`send` calls ``on_delivery`` for a record that it refuses, before it raises."""
    scene = Scene()
    message = Message(scene.reports, "t", None, None, None, None)
    message.thread = threading.get_ident()
    message(RecordTooLargeError(), None)
    assert message.is_pending
    message.thread = 0
    message(RecordTooLargeError(), None)
    assert (message.is_pending, message.error()) == (False, RecordTooLargeError)


def test_a_reported_message_does_not_keep_its_callback() -> None:
    """The garbage collector does not see messages: a program may keep them in what its callback belongs to."""

    class Program:
        def __init__(self) -> None:
            self.kept: list[Message] = []

        def note(self, error: Any, message: Message) -> None:
            self.kept.append(message)

    scene, program = Scene(), Program()
    kept = weakref.ref(program)
    scene.message(program.note)
    scene.message(program.note).drop()
    scene.complete(0, 0)
    assert scene.reports.serve() == 1
    del program
    gc.collect()
    assert kept() is None
