"""The messages of Kafka's protocol that we use, in the versions that we use.

Generated from the message definitions of Apache Kafka 4.3.1 by tools/generate_protocol.py. Do not edit.
"""

from __future__ import annotations

from typing import Final

from shmaccum.kafka.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Api,
    ApiMessageType,
    Field,
    array,
    nested,
)

PRODUCE: Final = ApiMessageType(
    Api("Produce", key=0, oldest=7, newest=12, flexible_since=9),
    request=(
        Field("transactional_id", STRING, None, nullable_since=0),
        Field("acks", INT16, 0),
        Field("timeout_ms", INT32, 0),
        array(
            "topic_data",
            Field("name", STRING, ""),
            array("partition_data", Field("index", INT32, 0), Field("records", BYTES, b"", nullable_since=0)),
        ),
    ),
    response=(
        array(
            "responses",
            Field("name", STRING, ""),
            array(
                "partition_responses",
                Field("index", INT32, 0),
                Field("error_code", INT16, 0),
                Field("base_offset", INT64, 0),
                Field("log_append_time_ms", INT64, -1),
                Field("log_start_offset", INT64, -1),
                array(
                    "record_errors",
                    Field("batch_index", INT32, 0),
                    Field("batch_index_error_message", STRING, None, nullable_since=0),
                    since=8,
                ),
                Field("error_message", STRING, None, since=8, nullable_since=8),
                nested(
                    "current_leader", Field("leader_id", INT32, -1), Field("leader_epoch", INT32, -1), since=10, tag=0
                ),
            ),
        ),
        Field("throttle_time_ms", INT32, 0),
        array(
            "node_endpoints",
            Field("node_id", INT32, 0),
            Field("host", STRING, ""),
            Field("port", INT32, 0),
            Field("rack", STRING, None, nullable_since=0),
            since=10,
            tag=0,
        ),
    ),
)
FETCH: Final = ApiMessageType(
    Api("Fetch", key=1, oldest=4, newest=12, flexible_since=12),
    request=(
        Field("cluster_id", STRING, None, since=12, nullable_since=12, tag=0),
        Field("replica_id", INT32, -1),
        Field("max_wait_ms", INT32, 0),
        Field("min_bytes", INT32, 0),
        Field("max_bytes", INT32, 2147483647),
        Field("isolation_level", INT8, 0),
        Field("session_id", INT32, 0, since=7),
        Field("session_epoch", INT32, -1, since=7),
        array(
            "topics",
            Field("topic", STRING, ""),
            array(
                "partitions",
                Field("partition", INT32, 0),
                Field("current_leader_epoch", INT32, -1, since=9),
                Field("fetch_offset", INT64, 0),
                Field("last_fetched_epoch", INT32, -1, since=12),
                Field("log_start_offset", INT64, -1, since=5),
                Field("partition_max_bytes", INT32, 0),
            ),
        ),
        array(
            "forgotten_topics_data", Field("topic", STRING, ""), Field("partitions", INT32, (), is_array=True), since=7
        ),
        Field("rack_id", STRING, "", since=11),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        Field("error_code", INT16, 0, since=7),
        Field("session_id", INT32, 0, since=7),
        array(
            "responses",
            Field("topic", STRING, ""),
            array(
                "partitions",
                Field("partition_index", INT32, 0),
                Field("error_code", INT16, 0),
                Field("high_watermark", INT64, 0),
                Field("last_stable_offset", INT64, -1),
                Field("log_start_offset", INT64, -1, since=5),
                nested("diverging_epoch", Field("epoch", INT32, -1), Field("end_offset", INT64, -1), since=12, tag=0),
                nested(
                    "current_leader", Field("leader_id", INT32, -1), Field("leader_epoch", INT32, -1), since=12, tag=1
                ),
                nested("snapshot_id", Field("end_offset", INT64, -1), Field("epoch", INT32, -1), since=12, tag=2),
                array(
                    "aborted_transactions",
                    Field("producer_id", INT64, 0),
                    Field("first_offset", INT64, 0),
                    nullable_since=0,
                ),
                Field("preferred_read_replica", INT32, -1, since=11),
                Field("records", BYTES, b"", nullable_since=0),
            ),
        ),
    ),
)
LIST_OFFSETS: Final = ApiMessageType(
    Api("ListOffsets", key=2, oldest=2, newest=7, flexible_since=6),
    request=(
        Field("replica_id", INT32, 0),
        Field("isolation_level", INT8, 0),
        array(
            "topics",
            Field("name", STRING, ""),
            array(
                "partitions",
                Field("partition_index", INT32, 0),
                Field("current_leader_epoch", INT32, -1, since=4),
                Field("timestamp", INT64, 0),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        array(
            "topics",
            Field("name", STRING, ""),
            array(
                "partitions",
                Field("partition_index", INT32, 0),
                Field("error_code", INT16, 0),
                Field("timestamp", INT64, -1),
                Field("offset", INT64, -1),
                Field("leader_epoch", INT32, -1, since=4),
            ),
        ),
    ),
)
METADATA: Final = ApiMessageType(
    Api("Metadata", key=3, oldest=0, newest=13, flexible_since=9),
    request=(
        array(
            "topics",
            Field("topic_id", UUID, 0, since=10),
            Field("name", STRING, "", nullable_since=10),
            nullable_since=1,
        ),
        Field("allow_auto_topic_creation", BOOL, True, since=4),
        Field("include_cluster_authorized_operations", BOOL, False, since=8, until=10),
        Field("include_topic_authorized_operations", BOOL, False, since=8),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0, since=3),
        array(
            "brokers",
            Field("node_id", INT32, 0),
            Field("host", STRING, ""),
            Field("port", INT32, 0),
            Field("rack", STRING, None, since=1, nullable_since=1),
        ),
        Field("cluster_id", STRING, None, since=2, nullable_since=2),
        Field("controller_id", INT32, -1, since=1),
        array(
            "topics",
            Field("error_code", INT16, 0),
            Field("name", STRING, "", nullable_since=12),
            Field("topic_id", UUID, 0, since=10),
            Field("is_internal", BOOL, False, since=1),
            array(
                "partitions",
                Field("error_code", INT16, 0),
                Field("partition_index", INT32, 0),
                Field("leader_id", INT32, 0),
                Field("leader_epoch", INT32, -1, since=7),
                Field("replica_nodes", INT32, (), is_array=True),
                Field("isr_nodes", INT32, (), is_array=True),
                Field("offline_replicas", INT32, (), is_array=True, since=5),
            ),
            Field("topic_authorized_operations", INT32, -2147483648, since=8),
        ),
        Field("cluster_authorized_operations", INT32, -2147483648, since=8, until=10),
        Field("error_code", INT16, 0, since=13),
    ),
)
FIND_COORDINATOR: Final = ApiMessageType(
    Api("FindCoordinator", key=10, oldest=1, newest=6, flexible_since=3),
    request=(
        Field("key", STRING, "", until=3),
        Field("key_type", INT8, 0),
        Field("coordinator_keys", STRING, (), is_array=True, since=4),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        Field("error_code", INT16, 0, until=3),
        Field("error_message", STRING, "", until=3, nullable_since=0),
        Field("node_id", INT32, 0, until=3),
        Field("host", STRING, "", until=3),
        Field("port", INT32, 0, until=3),
        array(
            "coordinators",
            Field("key", STRING, ""),
            Field("node_id", INT32, 0),
            Field("host", STRING, ""),
            Field("port", INT32, 0),
            Field("error_code", INT16, 0),
            Field("error_message", STRING, "", nullable_since=0),
            since=4,
        ),
    ),
)
SASL_HANDSHAKE: Final = ApiMessageType(
    Api("SaslHandshake", key=17, oldest=1, newest=1, flexible_since=32767),
    request=(Field("mechanism", STRING, ""),),
    response=(Field("error_code", INT16, 0), Field("mechanisms", STRING, (), is_array=True)),
)
API_VERSIONS: Final = ApiMessageType(
    Api("ApiVersions", key=18, oldest=0, newest=3, flexible_since=3),
    request=(Field("client_software_name", STRING, "", since=3), Field("client_software_version", STRING, "", since=3)),
    response=(
        Field("error_code", INT16, 0),
        array("api_keys", Field("api_key", INT16, 0), Field("min_version", INT16, 0), Field("max_version", INT16, 0)),
        Field("throttle_time_ms", INT32, 0, since=1),
        array(
            "supported_features",
            Field("name", STRING, ""),
            Field("min_version", INT16, 0),
            Field("max_version", INT16, 0),
            since=3,
            tag=0,
        ),
        Field("finalized_features_epoch", INT64, -1, since=3, tag=1),
        array(
            "finalized_features",
            Field("name", STRING, ""),
            Field("max_version_level", INT16, 0),
            Field("min_version_level", INT16, 0),
            since=3,
            tag=2,
        ),
        Field("zk_migration_ready", BOOL, False, since=3, tag=3),
    ),
)
CREATE_TOPICS: Final = ApiMessageType(
    Api("CreateTopics", key=19, oldest=4, newest=7, flexible_since=5),
    request=(
        array(
            "topics",
            Field("name", STRING, ""),
            Field("num_partitions", INT32, 0),
            Field("replication_factor", INT16, 0),
            array("assignments", Field("partition_index", INT32, 0), Field("broker_ids", INT32, (), is_array=True)),
            array("configs", Field("name", STRING, ""), Field("value", STRING, "", nullable_since=0)),
        ),
        Field("timeout_ms", INT32, 60000),
        Field("validate_only", BOOL, False),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        array(
            "topics",
            Field("name", STRING, ""),
            Field("topic_id", UUID, 0, since=7),
            Field("error_code", INT16, 0),
            Field("error_message", STRING, "", nullable_since=0),
            Field("topic_config_error_code", INT16, 0, since=5, tag=0),
            Field("num_partitions", INT32, -1, since=5),
            Field("replication_factor", INT16, -1, since=5),
            array(
                "configs",
                Field("name", STRING, ""),
                Field("value", STRING, "", nullable_since=0),
                Field("read_only", BOOL, False),
                Field("config_source", INT8, -1),
                Field("is_sensitive", BOOL, False),
                since=5,
                nullable_since=5,
            ),
        ),
    ),
)
INIT_PRODUCER_ID: Final = ApiMessageType(
    Api("InitProducerId", key=22, oldest=0, newest=5, flexible_since=2),
    request=(
        Field("transactional_id", STRING, "", nullable_since=0),
        Field("transaction_timeout_ms", INT32, 0),
        Field("producer_id", INT64, -1, since=3),
        Field("producer_epoch", INT16, -1, since=3),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        Field("error_code", INT16, 0),
        Field("producer_id", INT64, -1),
        Field("producer_epoch", INT16, 0),
    ),
)
ADD_PARTITIONS_TO_TXN: Final = ApiMessageType(
    Api("AddPartitionsToTxn", key=24, oldest=0, newest=3, flexible_since=3),
    request=(
        Field("v3_and_below_transactional_id", STRING, ""),
        Field("v3_and_below_producer_id", INT64, 0),
        Field("v3_and_below_producer_epoch", INT16, 0),
        array("v3_and_below_topics", Field("name", STRING, ""), Field("partitions", INT32, (), is_array=True)),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        array(
            "results_by_topic_v3_and_below",
            Field("name", STRING, ""),
            array("results_by_partition", Field("partition_index", INT32, 0), Field("partition_error_code", INT16, 0)),
        ),
    ),
)
ADD_OFFSETS_TO_TXN: Final = ApiMessageType(
    Api("AddOffsetsToTxn", key=25, oldest=0, newest=4, flexible_since=3),
    request=(
        Field("transactional_id", STRING, ""),
        Field("producer_id", INT64, 0),
        Field("producer_epoch", INT16, 0),
        Field("group_id", STRING, ""),
    ),
    response=(Field("throttle_time_ms", INT32, 0), Field("error_code", INT16, 0)),
)
END_TXN: Final = ApiMessageType(
    Api("EndTxn", key=26, oldest=0, newest=5, flexible_since=3),
    request=(
        Field("transactional_id", STRING, ""),
        Field("producer_id", INT64, 0),
        Field("producer_epoch", INT16, 0),
        Field("committed", BOOL, False),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        Field("error_code", INT16, 0),
        Field("producer_id", INT64, -1, since=5),
        Field("producer_epoch", INT16, -1, since=5),
    ),
)
TXN_OFFSET_COMMIT: Final = ApiMessageType(
    Api("TxnOffsetCommit", key=28, oldest=0, newest=5, flexible_since=3),
    request=(
        Field("transactional_id", STRING, ""),
        Field("group_id", STRING, ""),
        Field("producer_id", INT64, 0),
        Field("producer_epoch", INT16, 0),
        Field("generation_id", INT32, -1, since=3),
        Field("member_id", STRING, "", since=3),
        Field("group_instance_id", STRING, None, since=3, nullable_since=3),
        array(
            "topics",
            Field("name", STRING, ""),
            array(
                "partitions",
                Field("partition_index", INT32, 0),
                Field("committed_offset", INT64, 0),
                Field("committed_leader_epoch", INT32, -1, since=2),
                Field("committed_metadata", STRING, "", nullable_since=0),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        array(
            "topics",
            Field("name", STRING, ""),
            array("partitions", Field("partition_index", INT32, 0), Field("error_code", INT16, 0)),
        ),
    ),
)
DESCRIBE_CONFIGS: Final = ApiMessageType(
    Api("DescribeConfigs", key=32, oldest=1, newest=4, flexible_since=4),
    request=(
        array(
            "resources",
            Field("resource_type", INT8, 0),
            Field("resource_name", STRING, ""),
            Field("configuration_keys", STRING, (), is_array=True, nullable_since=0),
        ),
        Field("include_synonyms", BOOL, False),
        Field("include_documentation", BOOL, False, since=3),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        array(
            "results",
            Field("error_code", INT16, 0),
            Field("error_message", STRING, "", nullable_since=0),
            Field("resource_type", INT8, 0),
            Field("resource_name", STRING, ""),
            array(
                "configs",
                Field("name", STRING, ""),
                Field("value", STRING, "", nullable_since=0),
                Field("read_only", BOOL, False),
                Field("config_source", INT8, -1),
                Field("is_sensitive", BOOL, False),
                array(
                    "synonyms",
                    Field("name", STRING, ""),
                    Field("value", STRING, "", nullable_since=0),
                    Field("source", INT8, 0),
                ),
                Field("config_type", INT8, 0, since=3),
                Field("documentation", STRING, "", since=3, nullable_since=0),
            ),
        ),
    ),
)
SASL_AUTHENTICATE: Final = ApiMessageType(
    Api("SaslAuthenticate", key=36, oldest=0, newest=2, flexible_since=2),
    request=(Field("auth_bytes", BYTES, b""),),
    response=(
        Field("error_code", INT16, 0),
        Field("error_message", STRING, "", nullable_since=0),
        Field("auth_bytes", BYTES, b""),
        Field("session_lifetime_ms", INT64, 0, since=1),
    ),
)
DESCRIBE_TRANSACTIONS: Final = ApiMessageType(
    Api("DescribeTransactions", key=65, oldest=0, newest=0, flexible_since=0),
    request=(Field("transactional_ids", STRING, (), is_array=True),),
    response=(
        Field("throttle_time_ms", INT32, 0),
        array(
            "transaction_states",
            Field("error_code", INT16, 0),
            Field("transactional_id", STRING, ""),
            Field("transaction_state", STRING, ""),
            Field("transaction_timeout_ms", INT32, 0),
            Field("transaction_start_time_ms", INT64, 0),
            Field("producer_id", INT64, 0),
            Field("producer_epoch", INT16, 0),
            array("topics", Field("topic", STRING, ""), Field("partitions", INT32, (), is_array=True)),
        ),
    ),
)
LIST_TRANSACTIONS: Final = ApiMessageType(
    Api("ListTransactions", key=66, oldest=0, newest=2, flexible_since=0),
    request=(
        Field("state_filters", STRING, (), is_array=True),
        Field("producer_id_filters", INT64, (), is_array=True),
        Field("duration_filter", INT64, -1, since=1),
        Field("transactional_id_pattern", STRING, None, since=2, nullable_since=2),
    ),
    response=(
        Field("throttle_time_ms", INT32, 0),
        Field("error_code", INT16, 0),
        Field("unknown_state_filters", STRING, (), is_array=True),
        array(
            "transaction_states",
            Field("transactional_id", STRING, ""),
            Field("producer_id", INT64, 0),
            Field("transaction_state", STRING, ""),
        ),
    ),
)
