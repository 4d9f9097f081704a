"""A fake broker that coordinates transactions and groups: for answers that no real one can be made to give.

It keeps the rules of a real one. In version 1 of the protocol, AddPartitionsToTxn begins a transaction; in version 2
the first record or offset does. The end of none is INVALID_TXN_STATE. Each InitProducerId raises the epoch, in version
2 also each EndTxn. A test can say what it answers instead::

    broker.fail(ADD_PARTITIONS, CONCURRENT_TRANSACTIONS, LOST)    # to the next two requests of the kind
    with broker.holding(PRODUCE) as came: ...                     # answers after the block
"""

from __future__ import annotations

import io
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fake_broker import INIT_PRODUCER_ID, PRODUCE, FakeBroker, Request
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from processes import wait_until

FIND_COORDINATOR, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 10, 24, 25, 26, 28

INVALID_TXN_STATE: Final = 48
PRODUCER_FENCED: Final = 90
LOST: Final = -1000
"""Instead of an error code: the connection ends, the request was not processed."""
ANSWER_LOST: Final = -1001
"""Instead of an error code: the request is processed, and the connection ends."""

KINDS: Final = {
    PRODUCE: ProduceRequest,
    FIND_COORDINATOR: FindCoordinatorRequest,
    INIT_PRODUCER_ID: InitProducerIdRequest,
    ADD_PARTITIONS: AddPartitionsToTxnRequest,
    ADD_OFFSETS: AddOffsetsToTxnRequest,
    END_TXN: EndTxnRequest,
    TXN_OFFSET_COMMIT: TxnOffsetCommitRequest,
}
"""Requests that belong to transactions: API key -> class."""
NAMES: Final = {key: kind.__name__.removesuffix("Request") for key, kind in KINDS.items()}


class _Silence:
    """A time in which requests of a kind have no answer."""

    def __init__(self, api_key: int, processed: bool) -> None:
        self.api_key = api_key
        self.processed = processed
        self.is_over = threading.Event()

    def keep(self, api_key: int) -> None:
        """Wait until it is over, if it is about requests of this kind."""
        if api_key == self.api_key:
            self.is_over.wait()


class TransactionBroker(FakeBroker):
    """Coordinates one transactional id at a time: `reset` before the next one.

    Attributes:
        version: of the transaction protocol.
        producer_id: of the transactional id.
        epoch: the newest.
        is_open: whether a transaction has begun.
        ended: whether each EndTxn committed.
        answered: called with the API key after each request was processed.
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
        self.answers |= dict.fromkeys(KINDS, self._answer)

    def reset(self) -> None:
        """Forget everything."""
        self.producer_id, self.epoch, self.is_open = 77, -1, False
        self.ended: list[bool] = []
        self._failures: dict[int, deque[int]] = defaultdict(deque)
        self._gates: dict[int, threading.Event] = {}
        self._held = threading.Semaphore(0)
        self.answered: Callable[[int], object] = lambda key: None
        self.seen: list[Request] = []
        self._unheard = False
        self._of_partitions: list[int] = []
        self._silent = _Silence(-1, False)

    def fail(self, api_key: int, *codes: int) -> None:
        """Answer the next requests of a kind with these error codes; 0, `LOST` and `ANSWER_LOST` are possible."""
        self._failures[api_key] += codes

    def fail_partitions(self, *codes: int) -> None:
        """Answer the next AddPartitionsToTxn with an error code for each of its partitions."""
        self._of_partitions = list(codes)

    @contextmanager
    def silent(self, api_key: int, *, processed: bool) -> Iterator[None]:
        """Answer no request of a kind in the block, and then end its connection; process them, or not."""
        self._silent = silence = _Silence(api_key, processed)
        try:
            yield
        finally:
            self._silent = _Silence(-1, False)
            silence.is_over.set()

    @contextmanager
    def holding(self, api_key: int) -> Iterator[threading.Semaphore]:
        """Answer requests of a kind after the block; yields what a test acquires to wait for one."""
        gate = self._gates[api_key] = threading.Event()
        try:
            yield self._held
        finally:
            del self._gates[api_key]
            gate.set()

    def wait_for(self, api_key: int) -> None:
        """Wait until a request of a kind has come."""
        wait_until(lambda: self.count(api_key) > 0, f"a request {NAMES[api_key]} comes")

    def calls(self) -> list[str]:
        """Return the names of all requests of transactions, in their order."""
        return [NAMES[request.api_key] for request in self.seen]

    def count(self, api_key: int) -> int:
        """Return how many requests of a kind came."""
        return sum(request.api_key == api_key for request in self.seen)

    def api_versions(self, request: Request) -> Any:
        response = super().api_versions(request)
        if request.version >= 3:
            feature = {"name": "transaction.version", "max_version_level": self.version, "min_version_level": 1}
            response.finalized_features = [ApiVersionsResponse.FinalizedFeatureKey(version=request.version, **feature)]
            response.supported_features, response.finalized_features_epoch = [], 1
        return response

    def _answer(self, request: Request) -> Any:
        key, asked = request.api_key, decoded(request)
        if not getattr(asked, "transactional_id", True):
            return self._outside(request)
        self.seen.append(request)
        code = self._failures[key].popleft() if self._failures[key] else 0
        gate = self._gates.get(key)
        if gate is not None:
            self._held.release()
            gate.wait()
        silence = self._silent
        if silence.api_key == key:
            code = ANSWER_LOST if silence.processed else LOST
        if code == LOST:
            silence.keep(key)
            raise EOFError
        response = _ANSWERS[key](self, asked, request, 0 if code == ANSWER_LOST else code)
        self.answered(key)
        if key == END_TXN:
            self._unheard = code == ANSWER_LOST
        if code == ANSWER_LOST:
            silence.keep(key)
            raise EOFError
        return response

    def _outside(self, request: Request) -> Any:
        """Answer the sender's request for a producer id of its own."""
        assert request.api_key == INIT_PRODUCER_ID
        return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=5, producer_epoch=0)

    # --- answers, by kind ---------------------------------------------------------------------------

    def _find_coordinator(self, asked: Any, request: Request, code: int) -> Any:
        where = {"error_code": code, "error_message": None, "node_id": 1, "host": "127.0.0.1", "port": self.port}
        if request.version < 4:
            return FindCoordinatorResponse(throttle_time_ms=0, **where)
        found = [FindCoordinatorResponse.Coordinator(key=key, **where) for key in asked.coordinator_keys]
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=found)

    def _init_producer_id(self, asked: Any, request: Request, code: int) -> Any:
        if not code:
            self.epoch, self.is_open = self.epoch + 1, False
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=code,
            producer_id=-1 if code else self.producer_id,
            producer_epoch=-1 if code else self.epoch,
        )

    def _add_partitions(self, asked: Any, request: Request, code: int) -> Any:
        codes, self._of_partitions = self._of_partitions, []
        self.is_open |= not code and not codes
        Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        results = [
            Topic(
                name=topic.name,
                results_by_partition=[
                    Topic.AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=codes[at] if codes else code
                    )
                    for at, number in enumerate(topic.partitions)
                ],
            )
            for topic in asked.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results)

    def _add_offsets(self, asked: Any, request: Request, code: int) -> Any:
        self.is_open |= not code
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)

    def _txn_offset_commit(self, asked: Any, request: Request, code: int) -> Any:
        self.is_open |= not code and request.version >= 5
        Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
        Partition = Topic.TxnOffsetCommitResponsePartition
        topics = [
            Topic(
                name=topic.name,
                partitions=[
                    Partition(partition_index=each.partition_index, error_code=code if not number else 0)
                    for number, each in enumerate(topic.partitions)
                ],
            )
            for topic in asked.topics
        ]
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)

    def _end_txn(self, asked: Any, request: Request, code: int) -> Any:
        is_new = request.version >= 5
        if self._unheard and self.ended and self.ended[-1] == asked.committed and not code:
            return self._end_txn_response(is_new, 0)  # once more, as the answer was lost
        if not code and asked.producer_epoch < self.epoch:
            code = PRODUCER_FENCED
        if not code and not self.is_open and (asked.committed or not is_new):
            code = INVALID_TXN_STATE
        if not code:
            self.is_open = False
            self.ended.append(asked.committed)
            self.epoch += is_new
        return self._end_txn_response(is_new, code)

    def _end_txn_response(self, is_new: bool, code: int) -> Any:
        known = is_new and not code
        return EndTxnResponse(
            throttle_time_ms=0,
            error_code=code,
            producer_id=self.producer_id if known else -1,
            producer_epoch=self.epoch if known else -1,
        )

    def _produce(self, asked: Any, request: Request, code: int) -> Any:
        self.is_open |= not code
        Topic = ProduceResponse.TopicProduceResponse
        topics = [
            Topic(
                name=topic.name,
                partition_responses=[
                    Topic.PartitionProduceResponse(
                        index=partition.index,
                        error_code=code,
                        base_offset=-1 if code else 100,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[],
                        error_message=None,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in asked.topic_data
        ]
        return ProduceResponse(responses=topics, throttle_time_ms=0)


_ANSWERS: Final[dict[int, Callable[[TransactionBroker, Any, Request, int], Any]]] = {
    FIND_COORDINATOR: TransactionBroker._find_coordinator,
    INIT_PRODUCER_ID: TransactionBroker._init_producer_id,
    ADD_PARTITIONS: TransactionBroker._add_partitions,
    ADD_OFFSETS: TransactionBroker._add_offsets,
    TXN_OFFSET_COMMIT: TransactionBroker._txn_offset_commit,
    END_TXN: TransactionBroker._end_txn,
    PRODUCE: TransactionBroker._produce,
}


def decoded(request: Request) -> Any:
    """Return a request of transactions as kafka-python's object."""
    buffer = io.BytesIO(request.frame[4:])
    kind = KINDS[request.api_key][request.version]
    kind.parse_header(buffer)
    return kind.decode(buffer)
