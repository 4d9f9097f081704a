"""Sends records with whatever shmaccum is installed, and reads them back: ``send.py [BOOTSTRAP_SERVERS TOPIC]``.

`python -m tools.wheels` runs a copy of it in each new environment, with a broker. kafka-python, a dependency of the
package, reads the records back. cibuildwheel runs it without a broker: then they go through the log transport. It
prints where shmaccum is, the machine and the version of CPython.
"""

import platform
import subprocess
import sys
import tempfile

import shmaccum
from shmaccum import Producer

RECORDS = 1000


def send(settings: dict[str, object], topic: str) -> None:
    """Send the records; each is acknowledged."""
    with Producer({**settings, "sender.idle.ms": 100}) as producer:
        producer.send(topic, "flight 0", key=b"UA1545").get(timeout=120)
        for number in range(1, RECORDS):
            producer.send(topic, f"flight {number}")
        producer.flush()


def through_a_log() -> int:
    """Return how many records Kafka's log format has when they went there."""
    with tempfile.TemporaryDirectory() as log:
        send({"transport": "log", "log.dir": log}, "flights")
        dump = [sys.executable, "-m", "shmaccum", "dump", log, "--json"]
        return subprocess.run(dump, capture_output=True, text=True, check=True).stdout.count("\n")


def through_a_broker(bootstrap_servers: str, topic: str) -> int:
    """Return how many of the records a consumer finds in the topic, each of them once."""
    from kafka import KafkaConsumer

    send({"bootstrap.servers": bootstrap_servers}, topic)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    values = []
    for record in consumer:
        values.append(record.value)
        if len(values) == RECORDS:
            break
    consumer.close()
    return len({f"flight {number}".encode() for number in range(RECORDS)} & set(values))


if not shmaccum.compiled:
    sys.exit(f"the plain form is installed in {shmaccum.__file__}")
found = through_a_broker(*sys.argv[1:]) if sys.argv[1:] else through_a_log()
if found != RECORDS:
    sys.exit(f"{found} records were found, and not {RECORDS}")
print(shmaccum.__file__, platform.machine(), platform.python_version())
