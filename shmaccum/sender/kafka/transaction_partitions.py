"""Adds partitions to transactions of protocol version 1, before their first batches (AddPartitionsToTxn).

As in Kafka's producer, the sender does it, so that `send` waits for no broker. In version 2, a Produce request adds its
partitions itself. The transport gives the batches of such a transaction here first. Those of a partition that is not
added yet wait here, in their order, until the coordinator has answered. Then they are sent, or they fail as if their
broker had answered so. Partitions that come while a request is under way go into the next one.

Nothing of this is in the slab. The next sender asks again, which the coordinator allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from shmaccum import errors
from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import KafkaError, error_for_code
from shmaccum.kafka.handshake import SMALL_ANSWER
from shmaccum.kafka.poller import FOREVER_MS, ExponentialBackoff
from shmaccum.kafka.schema import ApiMessage
from shmaccum.kafka.transaction_requests import (
    CONCURRENT_BACKOFF_MS,
    MOVED,
    TRANSACTION,
    add_partitions,
    added,
    find_coordinator,
    worst,
)
from shmaccum.sender.kafka.produce_response import refuse

_PARTITION_SIZE: Final = 16
"""More bytes than a partition takes in an answer, besides its topic's name."""


class _Waiting(NamedTuple):
    """A batch whose partition is not added yet, the node that it is for, and how long it waits."""

    node: Node
    batch: ProduceBatch
    until_ms: float


class TransactionPartitions:
    """The partitions of one transaction, an inquiry of the transport; ``broker`` coordinates it, if that is known."""

    def __init__(self, batch: ProduceBatch, backoff: ExponentialBackoff, broker: int | None) -> None:
        self.key: Final = _key(batch)
        """Differs for each transaction."""
        self.broker = broker
        self._backoff = backoff
        self._added: set[TopicPartition] = set()
        self._waiting: list[_Waiting] = []
        self._asked: list[TopicPartition] = []
        """The partitions of the request under way; none while it asks for the coordinator."""
        self._under_way = False
        self._attempts = 0
        self._not_before_ms = 0.0
        self._failed: list[ProduceResponse] = []

    def is_of(self, batch: ProduceBatch) -> bool:
        """Return whether a batch is of this transaction."""
        return self.key == _key(batch)

    @property
    def is_waiting(self) -> bool:
        """Whether batches wait, or are to be taken."""
        return bool(self._waiting or self._failed)

    def admit(self, node: Node, batches: Sequence[ProduceBatch], until_ms: float) -> list[ProduceBatch]:
        """Return the batches that can be sent now; the others wait, until a time."""
        ready = [batch for batch in batches if batch.topic_partition in self._added]
        self._waiting += [
            _Waiting(node, batch, until_ms) for batch in batches if batch.topic_partition not in self._added
        ]
        return ready

    def take_added(self) -> Iterator[tuple[Node, list[ProduceBatch]]]:
        """Yield the batches that can be sent by now, each request's with its node: one batch of a partition."""
        ready = [each for each in self._waiting if each.batch.topic_partition in self._added]
        self._waiting = [each for each in self._waiting if each.batch.topic_partition not in self._added]
        while ready:
            node, taken, rest = ready[0].node, dict[TopicPartition, ProduceBatch](), list[_Waiting]()
            for each in ready:
                if each.node != node or each.batch.topic_partition in taken:
                    rest.append(each)
                else:
                    taken[each.batch.topic_partition] = each.batch
            yield node, list(taken.values())
            ready = rest

    def take_failed(self, now_ms: float) -> list[ProduceResponse]:
        """Return the answers of the batches that are not to be sent, among them those that have waited too long."""
        late = [each.batch for each in self._waiting if now_ms >= each.until_ms]
        if late and not self._under_way:
            text = f"the coordinator of transactional.id {self.key[0]!r} did not add it within request.timeout.ms"
            self._fail(late, errors.NetworkError, text)
        failed, self._failed = self._failed, []
        return failed

    def drop(self) -> None:
        """Fail what waits: its transaction is over."""
        self._fail([each.batch for each in self._waiting], errors.NetworkError, "its transaction has ended")

    # --- the inquiry --------------------------------------------------------------------------------

    def due_ms(self) -> float:
        """Return when to ask, or to look again."""
        if self._under_way or not self._waiting:
            return FOREVER_MS
        return self._not_before_ms

    def next_deadline_ms(self) -> float:
        """Return when the first batch has waited too long."""
        return min((each.until_ms for each in self._waiting), default=FOREVER_MS)

    def request(self, now_ms: float) -> ApiMessage:
        """Return the request to send now."""
        self._under_way = True
        transactional_id, producer_id, epoch, _ = self.key
        if self.broker is None:
            self._asked = []
            return find_coordinator(TRANSACTION, transactional_id)
        self._asked = list(dict.fromkeys(each.batch.topic_partition for each in self._waiting))
        return add_partitions(transactional_id, producer_id, epoch, self._asked)

    def largest_answer(self) -> int:
        """Return the most bytes of the answer."""
        names = sum(len(topic.encode()) for topic in {topic for topic, _ in self._asked})
        return SMALL_ANSWER + names + _PARTITION_SIZE * len(self._asked)

    def update(self, response: Any, now_ms: float) -> None:
        """Handle an answer. Raises NetworkError: it makes no sense."""
        if not self._asked:
            self._found(response, now_ms)
            return
        codes = added(response)
        if not codes.keys() >= set(self._asked):
            raise errors.NetworkError("the broker's answer makes no sense: a partition is missing in it")
        self._under_way = False
        code = worst(codes.values())
        if not code:
            self._added.update(self._asked)
            self._attempts = 0
        elif (error := error_for_code(code)).retriable:
            self._again(now_ms, error)
        else:
            where = next(f"{topic}-{number}" for (topic, number), each in codes.items() if each == code)
            self._refused(error, f", {where}")

    def failed(self, now_ms: float) -> None:
        """Note that a request got no answer, or cannot be sent."""
        self._under_way = False
        self._again(now_ms, errors.NetworkError)

    def _found(self, response: Any, now_ms: float) -> None:
        found = response.coordinators[0] if response.coordinators else response
        error = error_for_code(found.error_code) if found.error_code else None
        if error is None and found.node_id < 0:
            raise errors.NetworkError(f"impossible coordinator {found.node_id}")
        self._under_way = False
        if error is None:
            self.broker = found.node_id
        elif error.retriable:
            self._again(now_ms, error)
        else:
            self._refused(error, "")

    def _again(self, now_ms: float, error: type[KafkaError]) -> None:
        self._attempts += 1
        wait_ms = self._backoff.wait_ms(self._attempts)
        if error is errors.ConcurrentTransactionsError:
            wait_ms = min(wait_ms, CONCURRENT_BACKOFF_MS)
        elif issubclass(error, MOVED):
            self.broker = None
        self._not_before_ms = now_ms + wait_ms

    def _refused(self, error: type[KafkaError], where: str) -> None:
        """Fail the batches that asked for what is refused, or all if there is no coordinator."""
        if error is errors.InvalidProducerEpochError:
            error = errors.ProducerFencedError  # older brokers' code for it (KIP-588)
        asked = set(self._asked)
        batches = [each.batch for each in self._waiting if not asked or each.batch.topic_partition in asked]
        self._fail(batches, error, f"transactional.id {self.key[0]!r}{where}: {error.meaning()}")

    def _fail(self, batches: Sequence[ProduceBatch], error: type[KafkaError], text: str) -> None:
        failed = {id(batch) for batch in batches}
        self._waiting = [each for each in self._waiting if id(each.batch) not in failed]
        self._failed += refuse(batches, error, text)


def _key(batch: ProduceBatch) -> tuple[str, int, int, int]:
    assert batch.transactional_id is not None
    return batch.transactional_id, batch.producer_id, batch.producer_epoch, batch.transaction
