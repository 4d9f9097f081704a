"""A fake broker that coordinates transactions and groups: for answers that no real one can be made to give.

It keeps the rules of a real one. In version 1 of the protocol, AddPartitionsToTxn begins a transaction; in version 2
the first record or offset does. The end of none is INVALID_TXN_STATE. Each InitProducerId raises the epoch, in version
2 also each EndTxn. A test can say what it answers instead::

    broker.fail(ADD_PARTITIONS, CONCURRENT_TRANSACTIONS, LOST)    # to the next two requests of the kind
    with broker.holding(PRODUCE) as came: ...                     # answers after the block
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fake_broker import FakeBroker, Request, producer_id_of
from kafka.protocol.api_key import ApiKey

from tools.support import messages
from tools.support.messages import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    response,
)

INVALID_TXN_STATE: Final = 48
PRODUCER_FENCED: Final = 90
LOST: Final = -1000
"""Instead of an error code: the connection ends, the request was not processed."""
ANSWER_LOST: Final = -1001
"""Instead of an error code: the request is processed, and the connection ends."""


class TransactionBroker(FakeBroker):
    """Coordinates one transactional id at a time: `reset` before the next one.

    Attributes:
        version: of the transaction protocol.
        producer_id: of the transactional id.
        epoch: the newest.
        is_open: whether a transaction has begun.
        ended: whether each EndTxn committed.
        seen: the requests of transactions.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.reset()
        super().__init__()
        self.versions |= {
            FIND_COORDINATOR: (0, 6),
            ADD_PARTITIONS: (0, 3),
            ADD_OFFSETS: (0, 4),
            END_TXN: (0, 5),
            TXN_OFFSET_COMMIT: (0, 5),
        }
        self.answers |= dict.fromkeys(_ANSWERS, self.coordinate)

    def reset(self) -> None:
        self.producer_id, self.epoch, self.is_open = 77, -1, False
        self.ended: list[bool] = []
        self.seen: list[Request] = []
        self._failures: dict[int, deque[int]] = defaultdict(deque)
        self._of_partitions: list[int] = []
        self._gates: dict[int, tuple[threading.Event, int]] = {}
        self._held = threading.Semaphore(0)
        self._unheard = False

    def fail(self, api_key: int, *codes: int) -> None:
        """Answer the next requests of a kind with these error codes; 0, `LOST` and `ANSWER_LOST` are possible."""
        self._failures[api_key] += codes

    def fail_partitions(self, *codes: int) -> None:
        self._of_partitions = list(codes)

    @contextmanager
    def holding(self, api_key: int, code: int = 0) -> Iterator[threading.Semaphore]:
        """Answer requests of a kind after the block, by the code as in `fail`; process them at once.

        Yields what a test acquires to wait for such a request.
        """
        gate = threading.Event()
        self._gates[api_key] = gate, code
        try:
            yield self._held
        finally:
            del self._gates[api_key]
            gate.set()

    def calls(self) -> list[str]:
        return [NAMES[request.api_key] for request in self.seen]

    def count(self, api_key: int) -> int:
        return sum(request.api_key == api_key for request in self.seen)

    def api_versions(self, request: Request) -> Any:
        feature = {"name": "transaction.version", "max_version_level": self.version, "min_version_level": 1}
        return messages.api_versions(self.versions, finalized_features=[feature], finalized_features_epoch=1)

    def coordinate(self, request: Request) -> Any:
        """Answer a request by the rules, or as the test has said."""
        key, asked = request.api_key, request.asked
        if not getattr(asked, "transactional_id", True):  # the sender asks for a producer id of its own
            assert key == INIT_PRODUCER_ID
            return producer_id_of(5)
        self.seen.append(request)
        code = self._failures[key].popleft() if self._failures[key] else 0
        gate, code_of_gate = self._gates.get(key, (None, 0))
        code = code_of_gate or code
        answer = None if code == LOST else _ANSWERS[key](self, request, 0 if code == ANSWER_LOST else code)
        if key == END_TXN and code != LOST:
            self._unheard = code == ANSWER_LOST
        if gate is not None:
            self._held.release()
            gate.wait()
        if code in (LOST, ANSWER_LOST):
            raise EOFError
        return answer

    # --- answers, by kind ---------------------------------------------------------------------------

    def _find_coordinator(self, request: Request, code: int) -> Any:
        where = {"error_code": code, "error_message": None, "node_id": 1, "host": "127.0.0.1", "port": self.port}
        if request.version < 4:
            return response(FIND_COORDINATOR, **where)
        return response(FIND_COORDINATOR, coordinators=[{"key": key} | where for key in request.asked.coordinator_keys])

    def _init_producer_id(self, request: Request, code: int) -> Any:
        if not code:
            self.epoch, self.is_open = self.epoch + 1, False
        return self._with_producer(INIT_PRODUCER_ID, code, is_known=not code)

    def _with_producer(self, api_key: int, code: int, is_known: bool) -> Any:
        known = (self.producer_id, self.epoch) if is_known else (-1, -1)
        return response(api_key, error_code=code, producer_id=known[0], producer_epoch=known[1])

    def _add_partitions(self, request: Request, code: int) -> Any:
        codes, self._of_partitions = self._of_partitions, []
        self.is_open |= not code and not codes
        results = [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": number, "partition_error_code": codes[at] if codes else code}
                    for at, number in enumerate(topic.partitions)
                ],
            }
            for topic in request.asked.v3_and_below_topics
        ]
        return response(ADD_PARTITIONS, results_by_topic_v3_and_below=results)

    def _add_offsets(self, request: Request, code: int) -> Any:
        self.is_open |= not code
        return response(ADD_OFFSETS, error_code=code)

    def _txn_offset_commit(self, request: Request, code: int) -> Any:
        self.is_open |= not code and request.version >= 5
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": 0 if number else code}
                    for number, each in enumerate(topic.partitions)
                ],
            }
            for topic in request.asked.topics
        ]
        return response(TXN_OFFSET_COMMIT, topics=topics)

    def _end_txn(self, request: Request, code: int) -> Any:
        asked, is_new = request.asked, request.version >= 5
        is_again = self._unheard and self.ended[-1:] == [asked.committed]  # as the answer was lost
        if not code and not is_again:
            if asked.producer_epoch < self.epoch:
                code = PRODUCER_FENCED
            elif not self.is_open and (asked.committed or not is_new):
                code = INVALID_TXN_STATE
            else:
                self.is_open = False
                self.ended.append(asked.committed)
                self.epoch += is_new
        return self._with_producer(END_TXN, code, is_known=is_new and not code)

    def _produce(self, request: Request, code: int) -> Any:
        self.is_open |= not code
        answer = {"error_code": code, "base_offset": -1 if code else 100}
        topics = {
            topic.name: [answer | {"index": each.index} for each in topic.partition_data]
            for topic in request.asked.topic_data
        }
        return messages.produced(topics)


_ANSWERS: Final[dict[int, Callable[[TransactionBroker, Request, int], Any]]] = {
    PRODUCE: TransactionBroker._produce,
    FIND_COORDINATOR: TransactionBroker._find_coordinator,
    INIT_PRODUCER_ID: TransactionBroker._init_producer_id,
    ADD_PARTITIONS: TransactionBroker._add_partitions,
    ADD_OFFSETS: TransactionBroker._add_offsets,
    END_TXN: TransactionBroker._end_txn,
    TXN_OFFSET_COMMIT: TransactionBroker._txn_offset_commit,
}
NAMES: Final = {key: ApiKey(key).name for key in _ANSWERS}
"""Of the requests that belong to transactions, by API key."""
