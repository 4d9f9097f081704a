"""What becomes of sequence numbers, rule by rule, against brokers that check them as Kafka's do."""

from __future__ import annotations

from itertools import count

import pytest
from broker_model import SLOT, TIMEOUT_MS, BrokerRun, ClusterModel, StartBrokerRun, config_of, sent
from senders import Accumulators, counter, of_partition

from shmaccum._core import FutureRecordMetadata, Partition, Super
from shmaccum.cluster import TopicPartition
from shmaccum.errors import (
    AuthenticationError,
    DeliveryTimeoutError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    InvalidRecordError,
    KafkaError,
    NetworkError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from shmaccum.sender.sender import Sender
from shmaccum.shm.validation import MAX_EPOCH

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def run(start_broker_run: StartBrokerRun) -> BrokerRun:
    """A sender whose partitions know the producer: each has a batch, of sequence number 0, that is deleted again."""
    run = start_broker_run()
    for partition, model in run.cluster.partitions.items():
        send(run, 1, partition)
        run.go_on()
        model.values.clear()
    run.transport.sent.clear()
    run.cluster.numbers = count()
    return run


def send(run: BrokerRun, batches: int = 1, to: TopicPartition = T0) -> list[FutureRecordMetadata]:
    """Append numbered records, each of which becomes a batch, and send as many of them as may be."""
    futures = [run.send(to, b"%d" % next(run.cluster.numbers) + bytes(SLOT // 2)) for _ in range(batches)]
    run.step(batches + 1)
    return futures


def stored(run: BrokerRun, partition: TopicPartition = T0) -> list[int]:
    """Return the numbers of the records that a partition has."""
    return [int(value.rstrip(b"\0")) for value in run.cluster.partitions[partition].values]


def bumps(run: BrokerRun) -> int:
    return counter(run, Super.EPOCH_BUMPS)


def errors(futures: list[FutureRecordMetadata]) -> list[type[BaseException] | None]:
    """Return what became of records: None for those that are acknowledged."""
    found: list[type[BaseException] | None] = []
    for future in futures:
        try:
            future.get(0)
            found.append(None)
        except KafkaError as error:
            found.append(type(error))
    return found


def outcomes(run: BrokerRun, futures: list[FutureRecordMetadata]) -> list[type[BaseException] | None]:
    """Let the brokers answer until nothing is left; return what became of records."""
    run.go_on()
    return errors(futures)


# --- the producer id ------------------------------------------------------------------------------------


def test_slow_producer_id_delays_batches(start_broker_run: StartBrokerRun, cluster: ClusterModel) -> None:
    """Metadata come meanwhile; nothing is sent, and the sender does not spin."""
    ids, cluster.producer_ids = cluster.producer_ids, iter(())
    run = start_broker_run()
    futures = send(run, 2)
    run.transport.asked.clear()
    run.step(4)
    assert sent(run, T0) == []
    assert any(0 < timeout <= 100 for timeout in run.transport.asked)
    cluster.producer_ids = ids
    assert outcomes(run, futures) == [None, None]
    assert stored(run) == [0, 1]


def test_final_failure_fails_queued_batches(start_broker_run: StartBrokerRun, cluster: ClusterModel) -> None:
    """A wrong password: queued batches fail with that error at once, and the sender goes on."""
    ids, cluster.producer_ids = cluster.producer_ids, iter(())
    run = start_broker_run()
    run.transport.out_of_reach = AuthenticationError
    futures = send(run, 2) + send(run, 1, T1)
    assert errors(futures) == [AuthenticationError] * 3
    run.transport.out_of_reach, cluster.producer_ids = None, ids
    assert outcomes(run, send(run)) == [None]


def test_final_failure_spares_batches_in_flight(run: BrokerRun) -> None:
    """The transport still answers what is in flight."""
    in_flight = send(run)
    run.transport.out_of_reach = AuthenticationError
    queued = send(run)
    assert errors(queued) == [AuthenticationError]
    assert outcomes(run, in_flight) == [None]


@pytest.fixture
def _last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterModel, "first_epoch", MAX_EPOCH)


@pytest.mark.usefixtures("_last_epoch")
def test_a_spent_epoch_leads_to_a_new_producer_id(run: BrokerRun) -> None:
    """Behind the last epoch comes a new id, when nothing of the old one is unknown any more in any partition."""
    other = send(run, 1, T1)
    run.cluster.partitions[T0].refuse = [InvalidRecordError]
    refused = send(run)
    run.transport.answer(0)
    run.step()
    futures = send(run) + send(run, 1, T1)
    assert errors(refused) == [InvalidRecordError]
    assert run.transport.in_flight(1) == 1
    assert run.slab.words[Super.PRODUCER_ID] == 1001
    assert outcomes(run, other + futures) == [None] * 3
    assert run.slab.words[Super.PRODUCER_ID] == 1002
    assert bumps(run) == 0
    assert [list(each.producers) for each in run.cluster.partitions.values()] == [[1000, 1001]] * 2


def test_a_fenced_producer_id_is_replaced(run: BrokerRun) -> None:
    run.cluster.partitions[T0].refuse = [ProducerFencedError] * 2
    futures = send(run, 2)
    assert outcomes(run, futures) == [ProducerFencedError] * 2
    assert outcomes(run, send(run)) == [None]
    assert list(run.cluster.partitions[T0].producers) == [1000, 1001]


# --- retries --------------------------------------------------------------------------------------------


def test_those_behind_a_failed_one_follow_it_in_order(run: BrokerRun) -> None:
    """Five in flight, the first fails: those behind are out of order, and nothing new goes before all are there."""
    run.cluster.partitions[T0].refuse = [NotLeaderOrFollowerError]
    futures = send(run, 7)
    assert sent(run, T0) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]
    run.transport.answer_all()
    run.step(3)
    assert sent(run, T0) == []
    run.step(3, after_ms=20)
    assert sent(run, T0) == [(0, 1)]  # one at a time, until the last of them is in flight
    run.go_on()
    assert sent(run, T0) == [(0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (0, 7)]
    assert errors(futures) == [None] * 7
    assert stored(run) == list(range(7))
    assert bumps(run) == 0


def test_a_lost_answer(run: BrokerRun) -> None:
    """The broker recognises stored batches by their numbers, and answers their offsets."""
    futures = send(run, 3)
    run.transport.store(0, 2)
    run.transport.drop(0)
    run.go_on()
    assert [future.get(0).offset for future in futures] == [0, 1, 2]
    assert stored(run) == [0, 1, 2]
    assert bumps(run) == 0


def test_never_more_behind_a_batch_than_a_broker_remembers(run: BrokerRun) -> None:
    """The first one's answer hangs on an old connection; those behind it, on a new one, are stored and answered.

    Were they followed by more and more, the broker would not know the first one again.
    """
    first = send(run)
    run.transport.store(0)
    run.cluster.move(T0)
    run.cluster.publish()
    behind = send(run, 8)
    for _ in range(10):
        run.transport.answer(1)
        run.step()
    assert len(stored(run)) <= 5
    run.transport.drop(0)
    assert outcomes(run, first + behind) == [None] * 9
    assert stored(run) == list(range(9))


def test_a_first_batch_is_not_overtaken(start_broker_run: StartBrokerRun) -> None:
    """A broker that knows nothing of a producer takes whatever comes first."""
    run = start_broker_run()
    run.cluster.partitions[T0].refuse = [NetworkError]
    futures = send(run, 3)
    assert sent(run, T0) == [(0, 0)]
    assert outcomes(run, futures) == [None] * 3
    assert stored(run) == [0, 1, 2]


def test_an_old_brokers_duplicate(run: BrokerRun) -> None:
    """It knows that it has the batch, and not where."""
    futures = send(run)
    run.transport.store(0)
    run.transport.drop(0)
    run.cluster.partitions[T0].refuse = [DuplicateSequenceNumberError]
    run.go_on()
    futures += send(run)
    run.go_on()
    assert [future.get(0).offset for future in futures] == [-1, 1]
    assert bumps(run) == 0


def test_a_refused_batch_leaves_a_gap(run: BrokerRun) -> None:
    """The batches behind it are resent under their old numbers; once certainly not stored, they get new ones."""
    run.cluster.partitions[T0].refuse = [InvalidRecordError]
    futures = send(run, 6)
    run.transport.answer_all()
    run.step(2)
    assert sent(run, T0) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]
    run.go_on()
    # The four that may have been stored make it certain, and nothing of the partition is in flight then.
    assert sent(run, T0) == [(0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
    assert errors(futures) == [InvalidRecordError] + [None] * 5
    assert stored(run) == [1, 2, 3, 4, 5]
    assert bumps(run) == 1


# --- brokers that have come back ------------------------------------------------------------------------


def test_a_broker_that_knows_the_last_batch_only(run: BrokerRun) -> None:
    """Two of three batches in flight are stored when it comes to an unclean end.

    It says of those before the last one that they do not follow; that it has the last one says that it has them.
    """
    futures = send(run, 3)
    assert sent(run, T0) == [(0, 1), (0, 2), (0, 3)]
    run.transport.store(0, 2)
    run.cluster.partitions[T0].restart()
    run.transport.drop(0)
    assert outcomes(run, futures) == [None] * 3
    assert [future.get(0).offset for future in futures] == [-1, 1, 2]
    assert stored(run) == [0, 1, 2]
    assert sent(run, T0) == [(0, 1), (0, 2), (0, 3)]
    assert bumps(run) == 0


def test_an_undecided_batch_does_not_keep_its_partition_on_a_connection(run: BrokerRun) -> None:
    """The partition gets another one to the same broker; the undecided batch, in flight by its word, is answered."""
    futures = send(run, 3)
    run.transport.store(0, 2)
    run.cluster.partitions[T0].restart()
    run.transport.drop(0)
    while not run.transport.in_flight(0):
        run.step(after_ms=5)
    run.transport.answer(0)
    run.cluster.link(T0)
    assert outcomes(run, futures) == [None] * 3
    assert stored(run) == [0, 1, 2]


def test_a_later_answer_tells_of_those_before(run: BrokerRun) -> None:
    """The last one's answer has come; the one before, whose answer was lost, need not be asked for twice."""
    futures = send(run, 2)
    assert sent(run, T0) == [(0, 1), (0, 2)]
    run.transport.store(0, 2)
    run.transport.lose_answer(0)
    run.transport.answer(0)
    run.cluster.partitions[T0].restart()
    assert outcomes(run, futures) == [None, None]
    assert stored(run) == [0, 1]
    assert sent(run, T0) == [(0, 1)]
    assert bumps(run) == 0


def test_nothing_is_left_to_say_that_a_batch_is_stored(run: BrokerRun) -> None:
    """The one that the broker knows after an unclean end has expired. The one before it fails: it can be stored."""
    patient = Accumulators(run.slab, config_of(run.slab.name, delivery_timeout_ms=10 * TIMEOUT_MS))
    futures = [patient.append(T0, 0, None, b"0" + bytes(SLOT // 2), max_block_ms=0).future]
    next(run.cluster.numbers)
    run.step()
    hasty = send(run)
    assert sent(run, T0) == [(0, 1), (0, 2)]
    run.transport.store(0, 2)
    run.cluster.partitions[T0].restart()
    run.transport.drop(0)
    run.step(2)
    run.step(after_ms=10)  # the longest back-off
    assert sent(run, T0) == [(0, 1)]
    run.step(after_ms=TIMEOUT_MS)
    assert outcomes(run, futures) == [OutOfOrderSequenceError]
    assert errors(hasty) == [DeliveryTimeoutError]
    assert outcomes(run, send(run)) == [None]
    assert stored(run) == [0, 1, 2], "none twice"
    assert sent(run, T0) == [(1, 0)]


def test_an_undecided_batch_that_expires_is_freed_once(run: BrokerRun) -> None:
    """The next one's answer says that the broker has it; by then its producer knows that it has expired."""
    pool, before = run.accumulator.pool, run.slab.words[Super.RECORDS_SENT]
    hasty = send(run)
    patient = Accumulators(run.slab, config_of(run.slab.name, delivery_timeout_ms=10 * TIMEOUT_MS))
    future = patient.append(T0, 0, None, b"1" + bytes(SLOT // 2), max_block_ms=0).future
    run.step()
    run.transport.store(0, 2)
    run.cluster.partitions[T0].restart()
    run.transport.drop(0)
    run.step(2)
    run.step(after_ms=10)  # the longest back-off
    run.transport.answer(0)
    run.step()
    assert sent(run, T0) == [(0, 1), (0, 2), (0, 1)]
    run.step(after_ms=TIMEOUT_MS)
    assert errors(hasty) == [DeliveryTimeoutError]
    run.go_on()
    patient.producer.pending.poll()
    assert future.get(0).offset == 1
    assert stored(run) == [0, 1]
    assert run.slab.words[Super.RECORDS_SENT] == before + 1
    assert pool.available_memory() == pool.total_memory
    assert of_partition(run, T0, Partition.IN_FLIGHT) == 0


def test_a_gap_that_closes(run: BrokerRun) -> None:
    """A batch that expired in flight was stored after all: no batch gets a new number."""
    lost = send(run)
    run.transport.store(0)
    run.step(after_ms=TIMEOUT_MS)
    assert errors(lost) == [DeliveryTimeoutError]
    futures = send(run, 2)
    assert sent(run, T0) == [(0, 1)]
    assert of_partition(run, T0, Partition.HELD) == 1
    run.go_on()
    assert sent(run, T0) == [(0, 2), (0, 3)]
    assert errors(futures) == [None, None]
    assert stored(run) == [0, 1, 2]
    assert bumps(run) == 0


def test_a_batch_that_expires_in_retry(run: BrokerRun) -> None:
    run.transport.reachable = {1}
    lost = send(run)
    run.transport.reachable = {0, 1}
    run.step()
    run.transport.drop(0)
    run.transport.reachable = {1}
    run.step()
    run.step(after_ms=TIMEOUT_MS)
    assert errors(lost) == [DeliveryTimeoutError]
    run.transport.reachable = {0, 1}
    assert outcomes(run, send(run)) == [None]
    assert sent(run, T0) == [(0, 1), (1, 0)]


def test_a_broker_that_has_forgotten_the_producer(run: BrokerRun) -> None:
    """Before Kafka 2.5, when the last records of a producer had been deleted: UNKNOWN_PRODUCER_ID."""
    futures = send(run)
    run.go_on()
    partition = run.cluster.partitions[T0]
    partition.demands_sequence_0 = True
    partition.producers.clear()
    futures += send(run, 3)
    assert outcomes(run, futures) == [None] * 4
    assert stored(run) == [0, 1, 2, 3]
    assert bumps(run) == 1


@pytest.mark.parametrize(("has_looked", "is_new"), [(True, False), (True, True), (False, False)])
def test_a_broker_that_has_forgotten_an_idle_producer(
    start_broker_run: StartBrokerRun, has_looked: bool, is_new: bool
) -> None:
    """It takes any number then, also those behind a batch that it has refused. The sender can be new."""
    run = start_broker_run()
    futures = send(run)
    run.go_on()
    if has_looked:  # else it slept from the answer on, as a computer does
        run.step(after_ms=60_000)
    if is_new:
        run.sender = Sender(run.accumulator.sender, run.transport, run.doorbell, run.config)
        run.begin()
    run.clock.now_ms += 300_000
    partition = run.cluster.partitions[T0]
    partition.producers.clear()
    partition.refuse = [NotEnoughReplicasError]
    futures += send(run, 3)
    assert sent(run, T0)[-1] == (1, 0), "the first one travels alone"
    assert outcomes(run, futures) == [None] * 4
    assert stored(run) == [0, 1, 2, 3]
    assert bumps(run) == 0, "this is no failure"


def test_a_partition_with_little_to_do_keeps_its_epoch(run: BrokerRun) -> None:
    for _ in range(10):
        send(run)
        run.go_on()
        run.step(after_ms=200_000)
    assert {epoch for epoch, _ in sent(run, T0)} == {0}


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("refusal", [NotEnoughReplicasError, UnknownTopicOrPartitionError])
def test_a_batch_behind_which_a_forgetful_broker_goes_on(
    run: BrokerRun, refusal: type[KafkaError], is_lost: bool
) -> None:
    """It forgets idle producers, and takes any number then: it refuses the first batch, and stores those behind it.

    The answers of those come, or are lost.
    """
    run.cluster.partitions[T0].producers.clear()
    run.cluster.partitions[T0].refuse = [refusal]
    futures = send(run, 3)
    run.transport.store(0, 3)
    run.transport.answer(0)
    if is_lost:
        run.transport.drop(0)
    assert outcomes(run, futures) == [None] * 3
    assert stored(run) == [1, 2, 0]
    assert bumps(run) == 1


def test_an_epoch_that_the_broker_has_passed(run: BrokerRun) -> None:
    """Those it concerns fail, and a newer epoch is tried, until one is new enough."""
    futures = send(run)
    run.go_on()
    run.cluster.partitions[T0].producers[1000].epoch = 2
    for _ in range(2):
        failing = send(run)
        run.go_on()
        assert errors(failing) == [InvalidProducerEpochError]
    futures += send(run)
    run.cluster.partitions[T0].producers[1000].batches.clear()
    run.cluster.partitions[T0].producers[1000].epoch = 1
    assert outcomes(run, futures) == [None, None]
    assert bumps(run) == 2


@pytest.mark.parametrize(("times", "settings"), [(4, {"retries": 3}), (1, {"enable_idempotence": False})])
def test_out_of_order_is_not_for_ever(start_broker_run: StartBrokerRun, times: int, settings: dict[str, int]) -> None:
    """Without sequence numbers it is final."""
    run = start_broker_run(**settings)
    run.cluster.partitions[T0].refuse = [OutOfOrderSequenceError] * times
    futures = send(run)
    assert outcomes(run, futures) == [OutOfOrderSequenceError]
    assert len(sent(run, T0)) == times


# --- expiry in flight -----------------------------------------------------------------------------------


def test_a_batch_that_expires_in_flight(run: BrokerRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its producers hear of it at once; its memory is the transport's until that has answered."""
    pool = run.accumulator.pool
    woken: list[int] = []
    futures = send(run)
    monkeypatch.setattr(run.slab.wakeups, "wake_for_completions", woken.append)
    run.step(after_ms=TIMEOUT_MS - 1)
    assert not woken
    run.step(after_ms=1)
    assert woken == [run.slab.me]
    assert errors(futures) == [DeliveryTimeoutError]
    assert run.slab.words[Super.BATCHES_EXPIRED] == 1
    assert pool.available_memory() == pool.total_memory - SLOT
    assert of_partition(run, T0, Partition.IN_FLIGHT) == 1
    run.transport.drop(0)
    run.step()
    assert pool.available_memory() == pool.total_memory
    assert of_partition(run, T0, Partition.IN_FLIGHT) == 0
    assert run.slab.undelivered() == (0, 0)


@pytest.mark.parametrize("error", [None, NetworkError, InvalidRecordError])
def test_late_answer_of_an_expired_batch_is_ignored(run: BrokerRun, error: type[KafkaError] | None) -> None:
    futures = send(run)
    run.step(after_ms=TIMEOUT_MS)
    counted = [run.slab.words[each] for each in (Super.RECORDS_FAILED, Super.RECORDS_SENT)]
    run.cluster.partitions[T0].refuse = [] if error is None else [error]
    assert outcomes(run, futures) == [DeliveryTimeoutError]
    assert [run.slab.words[each] for each in (Super.RECORDS_FAILED, Super.RECORDS_SENT)] == counted
    assert outcomes(run, send(run)) == [None]


def test_a_batch_that_expires_while_its_answer_comes(run: BrokerRun) -> None:
    """It fails as one that has expired, not with the error that it would have been tried again for."""
    futures = send(run)
    run.step(after_ms=TIMEOUT_MS - 1)
    run.transport.drop(0)
    run.clock.now_ms += 1
    run.sender.run_once(run.clock.now_ms - 1)
    assert outcomes(run, futures) == [DeliveryTimeoutError]


def test_a_part_that_is_stored_though_its_batch_has_expired(run: BrokerRun) -> None:
    """The rest of the batch is a gap in the numbers, which needs no broker to be found: only so much is stored."""
    futures = [run.send(T0, bytes(50)) for _ in range(12)]
    run.cluster.largest = 300
    while counter(run, Super.RECORDS_SENT) < 2 + 6:  # with that of each partition before; some parts, then
        run.step()
        run.transport.answer_all()
    run.step()
    run.step(after_ms=TIMEOUT_MS)
    run.transport.answer_all()
    run.step()
    acknowledged = errors(futures).count(None)
    assert errors(futures) == [None] * acknowledged + [DeliveryTimeoutError] * (12 - acknowledged)
    assert 0 < acknowledged < len(run.cluster.partitions[T0].values) < 12
    retried = counter(run, Super.BATCHES_RETRIED)
    run.cluster.largest = SLOT
    assert outcomes(run, send(run)) == [None]
    assert (counter(run, Super.BATCHES_RETRIED), bumps(run)) == (retried, 1)


def test_a_partition_stays_muted_over_an_expiry(start_broker_run: StartBrokerRun) -> None:
    """One request at a time, without numbers: the one that was given up may still be stored."""
    run = start_broker_run(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    send(run)
    run.step(after_ms=TIMEOUT_MS)
    futures = send(run)
    assert run.transport.in_flight(0) == 1
    assert outcomes(run, futures) == [None]
    assert stored(run) == [0, 1]


def test_a_record_that_a_dead_sender_may_have_sent_takes_a_number(
    start_broker_run: StartBrokerRun, cluster: ClusterModel
) -> None:
    """The second sender sends what is behind an invalid record; the third does not know what came of that.

    Without a number for the record, the broker could take what comes next for something that it has.
    """
    cluster.is_invalid = lambda value: value == b"invalid"
    run = start_broker_run()
    for value in (b"a", b"invalid", b"c"):
        run.send(T0, value)
    while counter(run, Super.BATCHES_SPLIT) < 1:
        run.transport.answer_all()
        run.step()
    second = start_broker_run()
    while counter(second, Super.RECORDS_SENT) < 1:
        second.transport.answer_all()
        second.step()
    second.step()
    third = start_broker_run()
    third.go_on()
    assert cluster.partitions[T0].values == [b"a", b"c"]
    assert bumps(third) == 1


def test_slow_topic_creation(start_broker_run: StartBrokerRun, cluster: ClusterModel) -> None:
    """The sender looks again soon, whatever the transport wakes it for."""
    cluster.topic = "elsewhere"
    run = start_broker_run()
    run.transport.asked.clear()
    run.step(4)
    assert max(run.transport.asked) == 100
    cluster.topic = "t"
    cluster.publish()
    run.step()
    run.accumulator.map.refresh()
    assert T0 in run.accumulator.map.queues
