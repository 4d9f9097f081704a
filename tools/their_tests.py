"""Runs tests of confluent-kafka and kafka-python, from checkouts of theirs, over our producers: the import is changed.

Nothing else in a test changes. Its surroundings give it an Apache Kafka for ``localhost:9092``, topics that exist
before they are used, and an address without a broker where it names none. Tests that look into a producer's insides are
left out. docs/compat.md has the outcome of each.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.kafka import KafkaCluster

FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "confluent-kafka": (
        "tests/test_Producer.py",
        "tests/integration/producer/test_transactions.py",
        "tests/integration/producer/test_producer_wakeable_poll_flush.py",
        "tests/integration/serialization/test_serializers.py",
    ),
    "kafka-python": ("test/integration/test_producer_integration.py",),
}
"""Of each project, its tests of producers that say what programs see."""

_TOPICS: Final = (
    *("mytopic", "test-topic", "topic-with-dashes", "topic_with_underscores", "topic.with.dots", "topic123numbers"),
    *(f"memory-pressure-topic-{number}" for number in range(5)),
    *("idempotent_test_topic", "transactional_test_topic"),
)

_CONFLUENT: Final = '''
import itertools
import os
import pytest
import shmaccum.compat.confluent as ours
from confluent_kafka import DeserializingConsumer
from confluent_kafka.admin import AdminClient, NewTopic

SERVERS = os.environ["SERVERS"]
numbers = itertools.count()

def filled(conf):
    servers = conf.get("bootstrap.servers", "127.0.0.1:1")
    servers = {"localhost:9092": SERVERS, "nonexistent-broker:9092": "127.0.0.1:1"}.get(servers, servers)
    return {**conf, "bootstrap.servers": servers, "sender.idle.ms": 100}

class Producer(ours.Producer):
    def __init__(self, *args, **settings):
        if not args and not settings:
            super().__init__()
        super().__init__(filled({**(args[0] if args else {}), **settings}))

class SerializingProducer(ours.SerializingProducer):
    def __init__(self, conf):
        super().__init__(filled(conf))

class Cluster:
    """What their fixture ``kafka_cluster`` has."""

    def client_conf(self, conf=None):
        return {"bootstrap.servers": SERVERS, **(conf or {})}

    def cimpl_producer(self, conf=None):
        return Producer(self.client_conf(conf))

    def producer(self, conf=None, key_serializer=None, value_serializer=None):
        own = {"key.serializer": key_serializer, "value.serializer": value_serializer}
        return SerializingProducer({**self.client_conf(conf), **own})

    def consumer(self, conf=None, key_deserializer=None, value_deserializer=None):
        own = {"group.id": f"group-{next(numbers)}", "auto.offset.reset": "earliest",
               "key.deserializer": key_deserializer, "value.deserializer": value_deserializer}
        return DeserializingConsumer({**self.client_conf(conf), **own})

    def create_topic_and_wait_propogation(self, prefix, conf=None):
        name = f"{prefix}-{next(numbers)}"
        admin = AdminClient(self.client_conf())
        for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
            future.result()
        return name

    def seed_topic(self, topic, count=100):
        producer = self.cimpl_producer()
        for number in range(count):
            producer.produce(topic, f"test-data{number}")
        producer.flush()

@pytest.fixture
def kafka_cluster():
    return Cluster()

def __getattr__(name):
    return getattr(ours, name)
'''

_KAFKA_PYTHON: Final = '''
import os
import random
import string
import pytest
import kafka
from shmaccum.compat.kafka_python import KafkaProducer

SERVERS = os.environ["SERVERS"]

class Producer(KafkaProducer):
    """Creates each topic before its first record."""

    def send(self, topic, *args, **named):
        try:
            kafka.KafkaAdminClient(bootstrap_servers=SERVERS).create_topics({topic: {"num_partitions": 2}})
        except Exception:
            pass  # it is there
        self.send = super().send
        return self.send(topic, *args, **named)

    @staticmethod
    def max_usable_produce_magic(version):
        return 2

def random_string(length):
    return "".join(random.choice(string.ascii_letters) for _ in range(length))

def env_kafka_version():
    return (4, 0)

def maybe_skip_unsupported_compression(compression):
    pass

def factory(kind):
    made = []
    def make(topics=None, **configs):
        args = topics or ()
        made.append(kind(*args, bootstrap_servers=SERVERS, **configs))
        return made[-1]
    yield make
    for each in made:
        each.close()

@pytest.fixture
def kafka_producer_factory():
    yield from factory(lambda **configs: Producer(sender_idle_ms=100, **configs))

@pytest.fixture
def kafka_consumer_factory():
    yield from factory(kafka.KafkaConsumer)

class Admin(kafka.KafkaAdminClient):
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass

@pytest.fixture
def kafka_admin_client_factory():
    yield from factory(Admin)
'''

_SURROUNDINGS: Final = {"confluent-kafka": _CONFLUENT, "kafka-python": _KAFKA_PYTHON}


def moved(text: str) -> str:
    """Return a module of theirs that imports our producers."""
    text = re.sub(r"^from confluent_kafka import ", "from conftest import ", text, flags=re.MULTILINE)
    text = text.replace("from tests.common import TestConsumer", "from conftest import Consumer as TestConsumer")
    return re.sub(r"^from test\.testutil import ", "from conftest import ", text, flags=re.MULTILINE)


def run(project: str, checkout: Path, options: list[str]) -> int:
    """Run a project's tests; return pytest's exit code."""
    with tempfile.TemporaryDirectory() as name, KafkaCluster(Path(name) / "kafka") as cluster:
        directory = Path(name) / "tests"
        directory.mkdir()
        for topic in _TOPICS:
            cluster.admin.create_topic(topic, 3)
        (directory / "conftest.py").write_text(_SURROUNDINGS[project])
        for file in FILES[project]:
            (directory / Path(file).name).write_text(moved((checkout / file).read_text()))
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", "--timeout=60"]
        command += ["--rootdir", str(directory), *options, str(directory)]
        environment = os.environ | {"SERVERS": cluster.bootstrap_servers, "PYTHONPATH": str(Path.cwd())}
        return subprocess.run(command, env=environment, cwd=directory, check=False).returncode


def main() -> None:
    """Run the tests of the checkouts that are named."""
    parser = argparse.ArgumentParser(prog="python -m tools.their_tests", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("checkout", type=Path, help="a checkout of confluent-kafka-python or kafka-python")
    parser.add_argument("options", nargs="*", help="options of pytest, behind --")
    arguments = parser.parse_args()
    checkout = arguments.checkout.resolve()
    found = [project for project, files in FILES.items() if (checkout / files[0]).is_file()]
    if not found:
        parser.error(f"{checkout} is a checkout of neither {' nor '.join(FILES)}")
    sys.exit(run(found[0], checkout, arguments.options))


if __name__ == "__main__":
    main()
