"""The demo's topic in a Kafka cluster, read back by confluent-kafka, which shares no code with us.

Imports confluent-kafka, of the extra ``demo``.
"""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from shmaccum.cli.demo.log import TopicContents
from shmaccum.config import ProducerConfig
from shmaccum.config.foreign_settings import LIBRDKAFKAS
from shmaccum.config.valuetypes import Password
from shmaccum.errors import NetworkError

_TIMEOUT_S: Final = 30.0
"""Limit for each response of the cluster."""
_NOT_KNOWN_YET: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
_NO_ANSWER: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
_TOKEN_LIFE_S: Final = 300.0
_AT_ONCE: Final = 10_000
"""Messages to request from the consumer in one call."""
_SAME_NAME: Final = """
    sasl.mechanism sasl.username sasl.password sasl.kerberos.service.name sasl.kerberos.keytab sasl.kerberos.principal
    ssl.endpoint.identification.algorithm ssl.key.password
"""
_OURS: Final = {
    **{name: name for name in _SAME_NAME.split()},
    **{theirs: ours for theirs, ours in LIBRDKAFKAS.items() if theirs.startswith("ssl.")},
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
}
"""librdkafka's settings of SASL and TLS -> ours."""


class ClusterTarget:
    """A topic of a cluster. Attributes and methods are those of `shmaccum.cli.demo.log.LogTarget`.

    The topic is created if it does not exist; records that it holds already are not checked.

    Raises ConfigError: a setting is wrong.
    """

    def __init__(self, given: Mapping[str, object], topic: str, partitions: int) -> None:
        config = ProducerConfig.parse(given)
        self.topic = topic
        self.settings: dict[str, object] = {
            name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in given.items()
        }
        self.name = f"topic {topic} of {','.join(config.bootstrap_servers)}"
        self.hint = f"kafka-console-consumer.sh --topic {topic} --from-beginning --bootstrap-server " + ",".join(
            config.bootstrap_servers
        )
        self._partitions = partitions
        self._connection = librdkafka_settings(config)
        self._starts: dict[int, int] = {}

    def prepare(self) -> None:
        """Create the topic if it is missing, and record where each of its partitions ends.

        Raises NetworkError: the cluster does not respond, or responds with an error.
        """
        with self._answers(), self._consumer() as consumer:
            admin = AdminClient(self._connection)  # it must outlive its futures
            topics = [NewTopic(self.topic, self._partitions)]
            made = admin.create_topics(topics, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
            try:
                made[self.topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            self._starts = self._ends(consumer)

    def read_back(self) -> TopicContents:
        """Read the records added since `prepare`; check that offsets are consecutive.

        Raises NetworkError: the cluster does not respond, or responds with an error.
        """
        contents = TopicContents()
        with self._answers(), self._consumer() as consumer:
            ends = self._ends(consumer)
            nexts = {partition: self._starts.get(partition, 0) for partition in ends}
            consumer.assign([TopicPartition(self.topic, *each) for each in nexts.items()])
            while left := sum(max(0, end - nexts[partition]) for partition, end in ends.items()):
                # consume waits until it has as many messages as requested.
                messages = consumer.consume(min(left, _AT_ONCE), timeout=_TIMEOUT_S)
                if not messages:
                    contents.problems.append(f"{self.name}: {left} records still missing after {_TIMEOUT_S:.0f} s")
                    break
                for message in messages:
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    partition, offset = message.partition(), message.offset()
                    where = f"{self.topic}-{partition}"
                    contents.add(where, offset, nexts[partition], message.key(), message.value())
                    nexts[partition] = offset + 1
        return contents

    def _ends(self, consumer: Consumer) -> dict[int, int]:
        """Return where each partition ends now, once all brokers know a topic that has just been created."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                metadata = consumer.list_topics(self.topic, timeout=_TIMEOUT_S).topics[self.topic]
                if metadata.error is not None:
                    raise KafkaException(metadata.error)
                return {
                    number: consumer.get_watermark_offsets(TopicPartition(self.topic, number), timeout=_TIMEOUT_S)[1]
                    for number in sorted(metadata.partitions)
                }
            except KafkaException as error:
                if error.args[0].code() not in _NOT_KNOWN_YET or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _consumer(self) -> closing[Consumer]:
        settings = {
            "group.id": "shmaccum-demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
        return closing(Consumer(self._connection | settings))

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            what = error.args[0].str()
            if error.args[0].code() in _NO_ANSWER:
                protocol = self._connection["security.protocol"]
                what = f"no broker responded; check the address and security.protocol = {protocol!r} ({what})"
            raise NetworkError(f"{self.name}: {what}") from error


def librdkafka_settings(config: ProducerConfig) -> dict[str, Any]:
    """Return librdkafka's settings to reach the same cluster in the same way."""
    protocol = config.security_protocol
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(config.bootstrap_servers),
        "security.protocol": protocol,
        "log_level": 0,
    }
    for theirs, ours in _OURS.items():
        value = config[ours]
        value = value.value if isinstance(value, Password) else value
        if value not in (None, "") and theirs.partition(".")[0].upper() in protocol:
            settings[theirs] = value
    if "SSL" in protocol:
        settings.setdefault("ssl.endpoint.identification.algorithm", "none")
    if settings.get("sasl.mechanism") == "OAUTHBEARER":
        provide = pkgutil.resolve_name(config.sasl_oauthbearer_token_provider)
        settings["oauth_cb"] = lambda _: (provide(), time.time() + _TOKEN_LIFE_S)
    return settings
