"""kafka-python's futures and errors over ours.

Programs of kafka-python look at ``future.is_done`` in a loop, or add callbacks and go on with something else: its
sender is a thread of the program. Ours is another process, so something has to read its answers. Looking at a future
reads them. While callbacks wait, a thread reads them, too. A forked child starts its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import kafka.errors as theirs
from kafka.producer.future import RecordMetadata as TheirRecordMetadata
from kafka.structs import TopicPartition as TheirTopicPartition

from shmaccum import errors
from shmaccum._core import FutureRecordMetadata as OurFuture
from shmaccum.cluster import RecordMetadata
from shmaccum.producer.producer import Producer

logger = logging.getLogger(__name__)

_SLICE_S: Final = 0.5
"""How long the thread waits for a completion before it looks whether the producer is closed."""
_IDLE_S: Final = 5.0
"""How long it waits for another callback before it ends: a producer that was dropped unclosed leaves no thread."""

_CLASSES: Final = {
    errors.KafkaTimeoutError: theirs.KafkaTimeoutError,
    errors.TransactionAbortedError: theirs.TransactionAbortedError,
    errors.ConfigError: theirs.KafkaConfigurationError,
    errors.IllegalArgumentError: theirs.IllegalArgumentError,
    errors.IllegalStateError: theirs.IllegalStateError,
    errors.ProducerClosedError: theirs.IllegalStateError,
}


def their_error(error: errors.ShmaccumError) -> Exception:
    """Return an error of ours as the one that kafka-python raises; ours is its cause."""
    kind = next((_CLASSES[each] for each in type(error).__mro__ if each in _CLASSES), None)
    if kind is None:
        code = error.code if isinstance(error, errors.KafkaError) else -1
        kind = theirs.for_code(code) if code > 0 else theirs.KafkaError
    made: Exception = kind(str(error))
    made.__cause__ = error
    return made


@contextmanager
def raising_their_errors() -> Iterator[None]:
    """Turn errors of ours that a block raises into kafka-python's."""
    try:
        yield
    except errors.ShmaccumError as error:
        raise their_error(error) from error


class CallbackThread:
    """Reads completions as long as futures have callbacks. Threads share it."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.forked()
        producer._slab.on_fork(self)

    def forked(self) -> None:
        """Forget the parent's thread and callbacks in a forked child; another thread can hold the parent's lock."""
        self._changed = threading.Condition()
        self._waiting = 0
        self._thread: threading.Thread | None = None

    def expect(self) -> None:
        """Note that one more callback waits."""
        with self._changed:
            self._waiting += 1
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="shmaccum-callbacks", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except RuntimeError as error:
                    logger.warning("No thread runs callbacks (%s): the next send, flush or get does.", error)
            self._changed.notify()

    def arrived(self) -> None:
        """Note that one of them has run."""
        with self._changed:
            self._waiting -= 1

    def stop(self) -> None:
        """End the thread: the producer is closed."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while self._thread is me and self._waiting == 0:
                    if not self._changed.wait(_IDLE_S) and self._thread is me and self._waiting == 0:
                        self._thread = None
                if self._thread is not me:
                    return
            try:
                self._producer.poll(_SLICE_S)
            except errors.ProducerClosedError:
                return
            except errors.ShmaccumError as error:
                logger.warning("Waiting for acknowledgements failed: %s", error)
                with self._changed:
                    self._changed.wait(_SLICE_S)


@dataclass(slots=True, eq=False, repr=False)
class FutureRecordMetadata:
    """A record's future, with kafka-python's methods."""

    _producer: Producer
    _callbacks: CallbackThread
    _future: OurFuture | None
    """None for a record that was refused."""
    _failure: Exception | None = None
    """Why it was refused."""
    _header_size: int = -1
    """Bytes of the headers; -1 without."""

    error_on_callbacks: ClassVar[bool] = False

    def _their(self, metadata: RecordMetadata) -> Any:
        topic, partition, offset, timestamp, key_size, value_size = metadata
        where = TheirTopicPartition(topic, partition)
        return TheirRecordMetadata(
            topic, partition, where, offset, timestamp, None, key_size, value_size, self._header_size
        )

    @property
    def is_done(self) -> bool:
        """Whether the record is acknowledged or has failed; reads completions that have come."""
        future = self._future
        if future is None or future.is_done:
            return True
        with raising_their_errors():
            try:
                self._producer.poll()
            except errors.ProducerClosedError:
                return False  # it stays in the slab, and this process does not learn of it
        return future.is_done

    @property
    def exception(self) -> Exception | None:
        """Why the record failed; None if it is pending or acknowledged."""
        future = self._future
        if self._failure is None and future is not None and self.is_done and future.failed():
            error = future.exception()
            assert error is not None
            self._failure = their_error(error)
        return self._failure

    @property
    def value(self) -> Any:
        """Where the record is stored; None while it is pending, or if it failed."""
        metadata = None if self._future is None or not self.is_done else self._future.value
        return None if metadata is None else self._their(metadata)

    def succeeded(self) -> bool:
        """Return whether the record is acknowledged."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Return whether the record failed."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Return whether the record failed with a retriable error."""
        return self.is_done and isinstance(self.exception, theirs.RetriableError)

    def get(self, timeout: float | None = None) -> Any:
        """Wait until the record is acknowledged, and return where it is stored.

        Raises:
            KafkaTimeoutError: the time ran out.
            KafkaError: why the record failed; kafka-python's classes.
        """
        if self._future is None:
            assert self._failure is not None
            raise self._failure
        try:
            metadata = self._future.get(timeout)
        except errors.ShmaccumError as error:
            raise self.exception or their_error(error) from error
        return self._their(metadata)

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Call ``f(*args, metadata, **kwargs)`` when the record is acknowledged, in a thread of the producer."""
        return self._add(lambda metadata: f(*args, metadata, **kwargs), None)

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Call ``f(*args, error, **kwargs)`` when the record fails, in a thread of the producer."""
        return self._add(None, lambda error: f(*args, error, **kwargs))

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` in either case."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Any) -> Self:
        """Resolve another future of kafka-python with this one."""
        return self._add(future.success, future.failure)

    def _add(self, on_success: Callable[[Any], Any] | None, on_failure: Callable[[Any], Any] | None) -> Self:
        future = self._future
        if future is None:
            if on_failure is not None:
                _call(on_failure, self._failure)
            return self
        callbacks = self._callbacks
        callbacks.expect()

        def succeeded(metadata: RecordMetadata) -> None:
            callbacks.arrived()
            if on_success is not None:
                _call(on_success, self._their(metadata))

        def failed(error: errors.ShmaccumError) -> None:
            callbacks.arrived()
            if on_failure is not None:
                _call(on_failure, self.exception or their_error(error))

        future.add_callback(succeeded)
        future.add_errback(failed)
        return self


def _call(callback: Callable[[Any], Any], outcome: Any) -> None:
    try:
        callback(outcome)
    except Exception:
        logger.exception("Error processing callback")
