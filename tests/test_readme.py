"""The README's quick start does what it says."""

from __future__ import annotations

from brokers import consume
from examples import example
from producers import wait_until_gone
from runs import run_python

from tools.kafka import KafkaCluster


def test_without_spark(kafka: KafkaCluster, topic: str, slab_name: str) -> None:
    kafka.admin.create_topic(topic)
    code = example(
        "Send",
        {
            "broker1:9092": kafka.bootstrap_servers,
            '"flights"': f'"{topic}"',
            '"linger.ms": 5': f'"linger.ms": 5, "shmaccum.name": "{slab_name}", "sender.idle.ms": 100',
        },
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"RecordMetadata(topic='{topic}', partition=0, offset=0, ")
    assert done.stdout.count("\n") == 1, "no callback was given an error"
    records = consume({"bootstrap.servers": kafka.bootstrap_servers}, topic)[0]
    assert (records[0].key(), records[0].value(), records[0].headers()) == (
        b"UA1545",
        b"value",
        [("source", b"readme")],
    )
    assert [record.value() for record in records[1:]] == [b"flight %d" % number for number in range(1000)]
    wait_until_gone(slab_name)
