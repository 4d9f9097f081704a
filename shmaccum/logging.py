"""A handler of Python's ``logging`` that writes log records to Kafka, for programs of many processes.

All processes of the host share one slab and one sender. A record that the slab has accepted is sent even if its process
is killed in the next moment, so nothing has to be flushed before ``os._exit``.

What could go wrong, and does not:

* **Recursion.** Records of shmaccum itself are skipped, and so is what is logged while a record is handled: by a
  formatter, by a signal's handler, by a finalizer.
* **Deadlock.** No lock is held while a record is sent, neither the handler's nor any other, so a thread that waits for
  memory stops no other thread. The slab's own locks have timeouts. A fork finds no lock taken.
* **Silence.** Records that were not accepted are counted by `KafkaHandler.dropped`, and those that Kafka did not store
  by `KafkaHandler.failed`. The counts are those of one process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal

from shmaccum.cluster import RecordMetadata
from shmaccum.config.settingsfile import read_settings
from shmaccum.errors import (
    ConfigError,
    DeadOwnerError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    ShmaccumError,
)
from shmaccum.producer.destinations import is_metadata_timeout, wait_for_topic
from shmaccum.producer.producer import Producer

logger = logging.getLogger(__name__)

_OURS: Final = __name__.partition(".")[0]
_REST_S: Final = 10.0
"""After a failed start, or a topic that was not found: how long records are dropped without another attempt."""

_handling_in: set[int] = set()
"""The threads and greenlets that are handling a record."""

OnFull = Literal["drop", "block"]


class KafkaHandler(logging.Handler):
    """Sends log records to a topic.

    The producer is made with the first record, in the process that logs it. A forked child works on with it.

    Args:
        topic: a topic, or a template such as ``logs-%(processName)s``.
        config: the producer's settings, or the path of a file with them.
        level: of the handler.
        key: the key of a record: a template such as ``%(processName)s``, or a callable that takes the log record. By
            default there is none, and partitions take turns.
        partition: the partition of all records.
        on_full: when the slab has no memory. ``drop`` drops the record at once; ``block`` waits ``max.block.ms`` first.
        topic_timeout: seconds that the first record waits for the producer, and for its topic's metadata.
        flush_timeout: seconds that `flush` and `close` wait for acknowledgements.

    Raises:
        ConfigError: ``on_full`` is neither.
    """

    def __init__(
        self,
        topic: str,
        config: Mapping[str, object] | str | os.PathLike[str],
        *,
        level: int | str = logging.NOTSET,
        key: str | Callable[[logging.LogRecord], Any] | None = None,
        partition: int | None = None,
        on_full: OnFull = "drop",
        topic_timeout: float = 5.0,
        flush_timeout: float = 5.0,
    ) -> None:
        if on_full not in ("drop", "block"):
            raise ConfigError(f"on_full = {on_full!r}: must be drop or block")
        super().__init__(level)
        self._topic = topic
        self._config = config
        self._key = key
        self._partition = partition
        self._drops = on_full == "drop"
        self._topic_timeout = topic_timeout
        self._flush_timeout = flush_timeout
        self._producer: Producer | None = None
        self._is_closed = False
        self._has_given_up = False
        """Whether the last flush ran out of time, and nothing was logged since."""
        self._rest_until = 0.0
        self._dropped, self._failed = _Count(), _Count()
        self._making = threading.Lock()
        _made.add(self)

    @property
    def dropped(self) -> int:
        """How many records of this process were not accepted, for whatever reason."""
        return self._dropped.value

    @property
    def failed(self) -> int:
        """How many records of this process were accepted, and Kafka did not store them."""
        return self._failed.value

    # --- records ------------------------------------------------------------------------------------

    def handle(self, record: logging.LogRecord) -> bool:
        """Send a record that passes the filters; the handler's lock is not acquired."""
        if record.name == _OURS or record.name.startswith(f"{_OURS}."):
            return False
        if threading.get_ident() in _handling_in:
            self._dropped.add()
            return False
        passed: Any = self.filter(record)
        if isinstance(passed, logging.LogRecord):  # from Python 3.12 on, a filter can replace the record
            record = passed
        if passed:
            self._call_back()
            self.emit(record)
        return bool(passed)

    def _call_back(self) -> None:
        """Run delivery callbacks of the process that are due: in `emit`, what they log would be dropped."""
        producer = self._producer
        if producer is not None:
            with suppress(Exception), producer._guard:  # `emit` meets the error, too
                producer._accumulator.pending.poll()

    def emit(self, record: logging.LogRecord) -> None:
        """Format and send a record. An error other than a full slab or a lost broker goes to `handleError`."""
        with _handling():
            try:
                text = self.format(record)
                topic = self._topic % vars(record) if "%" in self._topic else self._topic
                key = self._key(record) if callable(self._key) else self._key and self._key % vars(record)
                self._send(topic, text, key, int(record.created * 1000))
            except (KafkaTimeoutError, ProducerClosedError) as error:
                self._dropped.add()
                if self._drops and self._producer is not None:
                    self._producer._records.count_refusal(topic, error)
            except Exception:
                self._dropped.add()
                self.handleError(record)

    def _send(self, topic: str, text: str, key: Any, timestamp_ms: int) -> None:
        producer = self._producer or self._make()
        if self._is_closed:  # while it was made: then there was none to close
            self.close()
        try:
            self._append(producer, topic, text, key, timestamp_ms)
        except DeadOwnerError:  # the slab was removed after a fork: neither parent nor child used it for a while
            if self._producer is producer:
                self._producer = None
            self._close(producer)
            self._send(topic, text, key, timestamp_ms)
        except KafkaTimeoutError as error:
            if not (self._drops and is_metadata_timeout(error)):
                raise
            self._check_rest()
            try:
                wait_for_topic(producer, topic, self._topic_timeout)
            except ShmaccumError:
                self._rest_until = time.monotonic() + _REST_S
                raise
            self._append(producer, topic, text, key, timestamp_ms)

    def _append(self, producer: Producer, topic: str, text: str, key: Any, timestamp_ms: int) -> None:
        self._has_given_up = False
        try:
            producer.send(topic, text, key, None, self._partition, timestamp_ms, self._note)
        except KafkaError as error:
            if error.is_api:
                self._failed.add(-1)  # `send` has called `_note`, and `emit` counts the record as dropped
            raise

    def _note(self, error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        """Count a record that is not stored."""
        if error is not None:
            self._failed.add()

    def _make(self) -> Producer:
        """Return the producer; make it on first use.

        Raises:
            KafkaTimeoutError: the last attempt failed less than 10 s ago, or another thread is slow to make it.
            ShmaccumError: it cannot be made.
        """
        self._check_rest()
        if not self._making.acquire(timeout=self._topic_timeout):
            raise KafkaTimeoutError(f"another thread has not made the producer within {self._topic_timeout} s")
        try:
            if self._is_closed:
                raise ProducerClosedError("the handler is closed")
            if self._producer is None:
                given = self._config
                settings = dict(given) if isinstance(given, Mapping) else dict(read_settings(given))
                if self._drops:
                    settings["max.block.ms"] = 0
                producer = Producer(settings)
                producer._records.counts_timeouts = not self._drops  # `_send` tries again
                self._producer = producer
            return self._producer
        except ShmaccumError:
            self._rest_until = time.monotonic() + _REST_S
            raise
        finally:
            self._making.release()

    def _check_rest(self) -> None:
        if time.monotonic() < self._rest_until:
            raise KafkaTimeoutError("the last attempt failed less than 10 s ago")

    # --- the end ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send everything at once, and wait for acknowledgements up to ``flush_timeout``. Raises nothing.

        What is not acknowledged by then stays in the slab and will be sent.
        """
        producer = self._producer
        if producer is None or threading.get_ident() in _handling_in:
            return
        with _handling():
            try:
                producer.flush(self._flush_timeout)
            except (KafkaTimeoutError, ProducerClosedError):
                self._has_given_up = True
            except ShmaccumError as error:
                logger.warning("Flushing log records failed: %s", error)

    def close(self) -> None:
        """Flush, and leave the slab; ``logging.shutdown`` calls this at the interpreter's exit. Raises nothing."""
        if not self._has_given_up:  # `logging.shutdown` has called it just before
            self.flush()
        self._is_closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            with _handling():
                self._close(producer)
        if self.dropped or self.failed:
            logger.warning("Of the log records of this process, %d were dropped, %d failed.", self.dropped, self.failed)
        super().close()

    @staticmethod
    def _close(producer: Producer) -> None:
        try:
            producer.close(0)
        except DeadOwnerError:
            pass  # its slab is gone
        except (ShmaccumError, OSError) as error:
            logger.warning("Closing the producer of log records failed: %s", error)

    def _forked(self) -> None:
        """In a forked child: count from 0, and forget a thread that was making the producer."""
        self._making = threading.Lock()
        self._dropped, self._failed = _Count(), _Count()


class _Count:
    """A count that threads share, and a signal's handler can interrupt."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.value = 0

    def add(self, number: int = 1) -> None:
        with self._lock:
            self.value += number


@contextmanager
def _handling() -> Iterator[None]:
    me = threading.get_ident()  # of the greenlet, where gevent has patched it
    _handling_in.add(me)
    try:
        yield
    finally:
        _handling_in.discard(me)


_made: weakref.WeakSet[KafkaHandler] = weakref.WeakSet()


def _forget_parents() -> None:
    _handling_in.clear()
    for handler in list(_made):
        handler._forked()


os.register_at_fork(after_in_child=_forget_parents)
