"""What a broker does not take: exactly the records that it refuses get its error, and all others arrive."""

from __future__ import annotations

from kafka_faults.trial import PARTITIONS, MakeTrial

from shmaccum.errors import KafkaTimeoutError
from tools.kafka import KafkaCluster
from tools.stress.accounting import route_of


def test_topic_deleted(kafka: KafkaCluster, trial: MakeTrial) -> None:
    """What is in the slab expires; what comes after the next refresh is refused, after ``max.block.ms``."""
    run = trial(kafka, topics=2, settings={"delivery.timeout.ms": 3000, "max.block.ms": 1000})
    run.await_heard()
    run.delete_topic(run.topics[1])
    run.await_refused(KafkaTimeoutError)
    stays, deleted = run.finish_by_topic()
    assert stays.all_arrived(), stays
    assert deleted.verdict.errors.keys() == {"DeliveryTimeoutError", "KafkaTimeoutError"}
    assert deleted.verdict.acknowledged > 0
    assert deleted.sent == deleted.verdict.acknowledged + deleted.verdict.errors.total()


def test_larger_than_the_topic_takes(kafka: KafkaCluster, trial: MakeTrial) -> None:
    run = trial(kafka, topic_settings={"max.message.bytes": 2500}, large=100, large_size=3000)
    run.await_heard(300)
    row = run.finish()
    assert row.all_told(), row
    assert row.verdict.errors == {"RecordTooLargeError": run.count(lambda writer, number: number % 100 == 0)}


def test_no_key_in_a_compacted_topic(kafka: KafkaCluster, trial: MakeTrial) -> None:
    run = trial(kafka, topic_settings={"cleanup.policy": "compact"})
    run.await_heard(300)
    row = run.finish()
    assert row.all_told(), row
    keyless = run.count(lambda writer, number: route_of(writer, number, PARTITIONS).key is None)
    assert row.verdict.errors == {"InvalidRecordError": keyless}
