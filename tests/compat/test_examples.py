"""Programs with another import and nothing else: one of confluent-kafka's examples, and one without that client."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from brokers import consume, produce, wait_for_markers
from producers import wait_until_gone
from runs import run_python

from tools.kafka import KafkaCluster

TRANSFORM = """
import sys
from base64 import b64encode
from shmaccum.compat.confluent import Consumer, KafkaError, Producer, TopicPartition

servers, source, target, name = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": f"group-{source}", "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "enable.partition.eof": True})
consumer.assign([TopicPartition(source, 0)])
producer = Producer({"bootstrap.servers": servers, "transactional.id": f"eos-{source}", "shmaccum.name": name,
                     "sender.idle.ms": 100})
producer.init_transactions()
producer.begin_transaction()
count = 0
while True:
    producer.poll(0)
    message = consumer.poll(timeout=1.0)
    if message is None:
        continue
    if message.error():
        if message.error().code() == KafkaError._PARTITION_EOF:
            break
        continue
    count += 1
    producer.produce(target, b64encode(message.value()), message.key())
    if count % 100 == 0:
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()),
                                             consumer.consumer_group_metadata())
        producer.commit_transaction()
        producer.begin_transaction()
producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
producer.commit_transaction()
print(count, [each.offset for each in consumer.committed(consumer.assignment())])
consumer.close()
"""


def test_consume_transform_produce(
    kafka: KafkaCluster, existing: str, topic: str, settings: dict[str, Any], slab_name: str
) -> None:
    target = f"{topic}-target"
    kafka.admin.create_topic(target)
    produce(settings, existing, [b"%d" % number for number in range(250)])
    done = run_python("-c", TRANSFORM, settings["bootstrap.servers"], existing, target, slab_name)
    assert (done.returncode, done.stdout) == (0, "250 [250]\n"), done.stderr
    wait_for_markers(settings["bootstrap.servers"])
    records = consume(settings | {"isolation.level": "read_committed"}, target)[0]
    assert [record.value() for record in records] == [b64encode(b"%d" % number) for number in range(250)]
    wait_until_gone(slab_name)


WITHOUT_CONFLUENT = """
import sys
sys.modules["confluent_kafka"] = None
from shmaccum.compat.confluent import KafkaError, KafkaException, Producer, SerializingProducer
import shmaccum.compat.confluent as module

settings = {"bootstrap.servers": "127.0.0.1:1", "shmaccum.name": sys.argv[1], "sender.idle.ms": 100,
            "message.timeout.ms": 10}
errors = []
with Producer(settings) as producer:
    producer.produce("t", "value", callback=lambda error, message: errors.append(error))
(error,) = errors
assert error.code() == KafkaError._MSG_TIMED_OUT == -192 == error and error != KafkaError._FAIL
assert error.name() == "_MSG_TIMED_OUT" and error and not error.fatal() and not error.retriable()
assert str(error) == repr(error) and repr(error).startswith("KafkaError{code=_MSG_TIMED_OUT,val=-192,str=")
assert KafkaError(-184).str() == "Local: Queue full" and hash(error) == hash(-192) and error < KafkaError(0)
try:
    Producer({"no.such": 1})
except KafkaException as exception:
    assert exception.args[0].code() == KafkaError._INVALID_ARG
serializing = SerializingProducer({**settings, "value.serializer": lambda value, context: 1 / 0})
try:
    serializing.produce("t", value=1)
except KafkaException as exception:
    assert exception.code == KafkaError._VALUE_SERIALIZATION and exception.name == "_VALUE_SERIALIZATION"
contexts = []
serializing._value_serializer = lambda value, context: contexts.append((context.topic, context.field)) or b""
serializing.produce("t", value=1)
assert contexts == [("t", "value")]
serializing.close()
try:
    from shmaccum.compat.confluent import Consumer
except ImportError as missing:
    assert "pip install confluent-kafka" in str(missing), missing
assert not hasattr(module, "libversion")
print("done")
"""


def test_programs_without_confluent_kafka(slab_name: str) -> None:
    done = run_python("-c", WITHOUT_CONFLUENT, slab_name)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    wait_until_gone(slab_name)
