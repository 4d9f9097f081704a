"""Sends records with whatever shmaccum is installed: ``send.py [BOOTSTRAP_SERVERS TOPIC]``.

`python -m tools.wheels` runs a copy of it in each new environment, with a broker, and reads the records itself.
cibuildwheel runs it without one. Then they go through the log transport, and are counted here. It prints where shmaccum
is, the machine and the version of CPython.
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


def through_a_log() -> None:
    """Send the records into Kafka's log format, and count them there."""
    with tempfile.TemporaryDirectory() as log:
        send({"transport": "log", "log.dir": log}, "flights")
        dump = [sys.executable, "-m", "shmaccum", "dump", log, "--json"]
        found = subprocess.run(dump, capture_output=True, text=True, check=True).stdout.count("\n")
    if found != RECORDS:
        sys.exit(f"the log has {found} records, and not {RECORDS}")


if __name__ == "__main__":
    if sys.argv[1:]:
        bootstrap_servers, topic = sys.argv[1:]
        send({"bootstrap.servers": bootstrap_servers}, topic)
    else:
        through_a_log()
    print(shmaccum.__file__, platform.machine(), platform.python_version())
