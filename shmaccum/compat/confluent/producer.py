"""confluent-kafka's ``Producer``, over the shared slab.

Callbacks run in `Producer.poll` and `Producer.flush`, in the thread that calls them, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

from shmaccum import _core
from shmaccum.compat.confluent.arguments import DeliveryCallback, check_batch
from shmaccum.compat.confluent.calls import PARTITION_UA, Calls
from shmaccum.compat.confluent.errors import KafkaException, new_error, raising_kafka_exceptions
from shmaccum.compat.confluent.settings import translate
from shmaccum.compat.confluent.transactions import TransactionalCalls
from shmaccum.producer.producer import no_pickle

if TYPE_CHECKING:
    from shmaccum.compat.confluent.metadata import ClusterMetadata


class Producer(_core.PollingProducer, TransactionalCalls):
    """A producer with confluent-kafka's methods.

    Theirs has no attributes, and calls no method that a subclass can replace. Nor does this one, but for ``_shm``.

    Args:
        config: librdkafka's settings. Our own, such as ``shmaccum.name``, can be among them.
        settings: further ones.

    Raises:
        KafkaException: a setting is unknown, refused or wrong, or the slab cannot be used.
        TypeError: there are no settings.
    """

    _shm: Calls

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Make a producer that is closed until its constructor has run."""
        self = super().__new__(cls)
        self._shm = Calls()
        return self

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        if (config is None and not settings) or not isinstance(config, Mapping | None):
            raise TypeError("expected configuration dict")
        with raising_kafka_exceptions():
            self._shm.open(translate({**(config or {}), **settings}))

    def __del__(self) -> None:
        """Drop the reports that were not asked for: the garbage collector does not see that they lead back here."""
        if self._shm.reports is not None:
            self._shm.reports.clear()

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    # --- producing ----------------------------------------------------------------------------------

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = PARTITION_UA,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Send several messages; return how many were accepted. The others get their KafkaError as ``_error``.

        A message is a dict with ``value``, ``key``, ``partition``, ``headers`` and ``callback``, all optional.

        Raises:
            TypeError: an argument or a message has the wrong type: then none is sent.
            ValueError: headers of a message have the wrong type: then none is sent.
            NotImplementedError: a message has a ``timestamp``.
        """
        self._shm.opened()
        check_batch(topic, messages, partition)
        accepted = 0
        for message in messages:
            own = message.get("partition")
            try:
                self._shm.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    partition if own is None else own,
                    message.get("callback") or callback or on_delivery,
                    headers=message.get("headers"),
                )
                accepted += 1
            except BufferError:
                message["_error"] = new_error("_QUEUE_FULL", "Local: Queue full")
            except KafkaException as error:
                message["_error"] = error.args[0]
        return accepted

    # --- reports ------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = -1) -> int:
        """Send everything at once, and wait until all messages are reported, up to ``timeout`` s.

        Returns:
            How many are not reported.
        """
        return self._shm.flush(timeout)

    def __len__(self) -> int:
        return self._shm.unreported()

    def __bool__(self) -> bool:
        return True

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Report messages as purged, in the next `poll` or `flush`.

        Args:
            in_queue: those that wait for their topic. They are not sent any more.
            in_flight: those that the slab has accepted, but only together with ``in_queue``, since some of them are not
                sent yet. They cannot be taken back and are still stored, as librdkafka's can be.
            blocking: has no effect.
        """
        self._shm.purge(in_queue, in_flight)

    def close(self) -> bool:
        """Abort an open transaction, flush, run the callbacks, and leave the slab. Returns True."""
        self._shm.close()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._shm.close()  # not by a subclass's method, as there

    # --- the cluster --------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Ask a broker for one topic, or all; the time limit is 60 s if ``timeout`` is negative.

        Raises KafkaException: no broker answered in time, or the cluster refuses us.
        """
        return self._shm.metadata(None if topic is None else [topic], timeout)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id, with the arguments and errors of `list_topics`."""
        return self._shm.metadata([], timeout).cluster_id

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Refuse: the credentials belong to the slab, which other programs use, too."""
        raise KafkaException(
            new_error("_NOT_IMPLEMENTED", "the credentials belong to the slab: make a producer with the new ones")
        )
