"""Administration of a running cluster by tests: topics, leaders, settings, access, quotas.

All requests use the brokers' internal listeners, so that neither security nor a proxy interferes. A call returns when
one broker shows the change; others can learn of it a moment later. The clients are not ours: confluent-kafka,
kafka-python for reassignment and quotas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicPartition,
    admin,
)
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonTopicPartition
from kafka.protocol.admin import AlterClientQuotasRequest

from tools.kafka.errors import KafkaToolError

TIMEOUT_S: Final = 30.0
"""How long anything may take."""
NO_LEADER: Final = -1
_NOT_YET: Final = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._NOENT,
}
"""What is answered before each new leader has its log; the last by librdkafka, if a broker has named no leaders."""
_ITERATIONS: Final = 4096


class Admin:
    """The administration of a cluster.

    Every method raises `confluent_kafka.KafkaException` with what the cluster answers, and KafkaToolError if a change
    was accepted and does not come about.
    """

    def __init__(self, internal_servers: str) -> None:
        self._servers = internal_servers
        # Connections that brokers which are killed leave behind are no news here.
        self._client = admin.AdminClient({"bootstrap.servers": internal_servers, "log_level": 0})

    def create_topic(self, topic: str, partitions: int = 1, *, settings: Mapping[str, object] | None = None) -> None:
        """Create a topic, on as many brokers as there are up to three, with settings such as ``max.message.bytes``."""
        config = {name: str(value) for name, value in (settings or {}).items()}
        new = admin.NewTopic(topic, partitions, config=config)
        self._client.create_topics([new])[topic].result(TIMEOUT_S)
        self._until(lambda: self._all_served(topic, partitions), f"topic {topic} with {partitions} partitions")

    def delete_topic(self, topic: str) -> None:
        self._client.delete_topics([topic], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
        self._until(lambda: not self.leaders(topic), f"topic {topic} gone")

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, so that it has this many."""
        self._client.create_partitions([admin.NewPartitions(topic, partitions)])[topic].result(TIMEOUT_S)
        self._until(lambda: self._all_served(topic, partitions), f"topic {topic} with {partitions} partitions")

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the node that leads each partition, `NO_LEADER` for none; nothing if there is no such topic."""
        return {partition: metadata.leader for partition, metadata in self._partitions(topic).items()}

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make a node that has a replica of a partition its leader: it becomes the preferred one, and is elected."""
        replicas = self._partitions(topic)[partition].replicas
        if to not in replicas:
            raise KafkaToolError(f"node {to} has no replica of {topic}-{partition}: those are on {replicas}")
        of = KafkaPythonTopicPartition(topic, partition)
        with self._kafka_python() as client:
            error = client.alter_partition_reassignments({of: [to, *(node for node in replicas if node != to)]})[of]
        if error is not None:
            raise KafkaToolError(f"node {to} could not become the first replica of {topic}-{partition}: {error}")
        self._until(lambda: to in self._partitions(topic)[partition].isrs, f"node {to} in sync for {topic}-{partition}")
        # What a partition's own leader already is, it answers as an error of that partition, which is no news.
        self._client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, partition)]).result(TIMEOUT_S)
        self._until(lambda: self.leaders(topic)[partition] == to, f"node {to} leading {topic}-{partition}")

    def committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        partitions = [TopicPartition(topic, partition) for partition in self.leaders(topic)]
        asked = self._client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)])
        found = asked[group].result(TIMEOUT_S).topic_partitions
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def deny(self, user: str, topic: str, operation: AclOperation = AclOperation.WRITE) -> None:
        self._add_rule(user, topic, operation, AclPermissionType.DENY)

    def allow(self, user: str, topic: str, operation: AclOperation = AclOperation.ALL) -> None:
        """Permit a user to use a topic; others, except super users, then need a rule too."""
        self._add_rule(user, topic, operation, AclPermissionType.ALLOW)

    def set_password(self, user: str, password: str) -> None:
        """Change a user's password for SCRAM, effective soon; open connections stay logged in."""
        changes = [
            admin.UserScramCredentialUpsertion(user, admin.ScramCredentialInfo(each, _ITERATIONS), password.encode())
            for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:  # a request has one change of a user at most
            self._client.alter_user_scram_credentials([change])[user].result(TIMEOUT_S)

    def throttle(self, bytes_per_second: int | None) -> None:
        """Make every broker throttle producers above this rate, effective soon; None ends that."""
        request = AlterClientQuotasRequest
        op = request.EntryData.OpData(
            key="producer_byte_rate", value=float(bytes_per_second or 0), remove=bytes_per_second is None
        )
        whom = request.EntryData.EntityData(entity_type="client-id", entity_name=None)
        with self._kafka_python() as client:
            manager = client._manager  # its public methods do not include this request
            entries = [request.EntryData(entity=[whom], ops=[op])]
            answer = manager.run(manager.send, request(entries=entries, validate_only=False))
        (entry,) = answer.entries
        if entry.error_code:
            raise KafkaToolError(f"the quota was not set: error {entry.error_code}, {entry.error_message}")

    def _kafka_python(self) -> closing[KafkaAdminClient]:
        return closing(KafkaAdminClient(bootstrap_servers=self._servers.split(",")))

    def _partitions(self, topic: str) -> Any:
        return self._client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions

    def _all_served(self, topic: str, partitions: int) -> bool:
        """Return whether the leader of each partition serves it.

        A broker shows itself as leader before it has the log, and refuses records until then. If it takes the second
        batch of a new producer but refused the first, a client may write the first one again, or fail.
        """
        leaders = self.leaders(topic)
        if len(leaders) != partitions or NO_LEADER in leaders.values():
            return False
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in leaders}
        try:
            for answer in self._client.list_offsets(asked).values():
                answer.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return False
        return True

    def _add_rule(self, user: str, topic: str, operation: AclOperation, permission: AclPermissionType) -> None:
        pattern = ResourcePatternType.LITERAL
        rule = admin.AclBinding(ResourceType.TOPIC, topic, pattern, f"User:{user}", "*", operation, permission)
        self._client.create_acls([rule])[rule].result(TIMEOUT_S)
        any_rule = (None, None, AclOperation.ANY, AclPermissionType.ANY)
        rules = admin.AclBindingFilter(ResourceType.TOPIC, topic, pattern, *any_rule)  # of this topic, and of no other
        self._until(lambda: rule in self._client.describe_acls(rules).result(TIMEOUT_S), f"rule {rule}")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise KafkaToolError(f"for {TIMEOUT_S} s there has not been {what}")
            time.sleep(0.01)
