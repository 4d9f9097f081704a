"""Settings of one producer, which can differ between producers of a slab."""

from __future__ import annotations

from shmaccum.config.configdef import Config, Group, Importance, Scope, Setting
from shmaccum.config.validators import DISTINCT, at_least
from shmaccum.config.valuetypes import BOOLEAN, CLASS, LONG, SERIALIZER, list_of, optional


class OwnSettings(Config, group=Group.PRODUCER, scope=Scope.PRODUCER):
    """Kafka's settings of what a producer does before a record is in a batch (``ProducerConfig``)."""

    __slots__ = ()

    key_serializer = Setting(
        optional(SERIALIZER),
        None,
        importance=Importance.HIGH,
        doc="""A callable that takes a record's key and returns its bytes, or its dotted name. An object with a method
            `serialize`, as in kafka-python, or a class of such objects, is called as `serialize(topic, key)`, and
            closed with the producer if it has `close`. Without one, a key is bytes or text.""",
    )
    value_serializer = Setting(
        optional(SERIALIZER),
        None,
        importance=Importance.HIGH,
        doc="""A callable that takes a record's value and returns its bytes, or its dotted name. An object with a method
            `serialize`, as in kafka-python, or a class of such objects, is called as `serialize(topic, value)`, and
            closed with the producer if it has `close`. Without one, a value is bytes or text.""",
    )
    partitioner_ignore_keys = Setting(
        BOOLEAN,
        False,
        importance=Importance.MEDIUM,
        doc="""Whether the partitioner ignores a record's key: the record goes to the current sticky partition, not to
            the partition that the hash of its key selects.""",
    )
    interceptor_classes = Setting(
        list_of(CLASS),
        (),
        DISTINCT,
        importance=Importance.LOW,
        doc="""Classes of interceptors, or their dotted names, in the order in which they see a record before it is
            serialized. Each is called without arguments when the producer is created.""",
    )
    partitioner_adaptive_partitioning_enable = Setting(
        BOOLEAN,
        True,
        importance=Importance.LOW,
        doc="""Whether records without a key go more often to partitions with fewer waiting batches, whose brokers are
            faster. Otherwise all partitions get the same share.""",
    )
    partitioner_availability_timeout_ms = Setting(
        LONG,
        0,
        at_least(0),
        importance=Importance.LOW,
        doc="""Milliseconds. A broker that has accepted none of its ready batches for this long gets no further
            records without a key. 0: never. Needs `partitioner.adaptive.partitioning.enable`.""",
    )
