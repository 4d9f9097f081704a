"""Translates the data source's options to settings, and error messages back to options."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from typing import Final

from shmaccum.config import ProducerConfig
from shmaccum.errors import ConfigError, ShmaccumError

logger = logging.getLogger(__name__)

PREFIX: Final = "kafka."

_NOT_SUPPORTED: Final = {
    "key.serializer": "keys are written as bytes or text; serialize them with DataFrame operations",
    "value.serializer": "values are written as bytes or text; serialize them with DataFrame operations",
    "interceptor.classes": "rows are sent column by column, and an interceptor needs single records",
}


OPTIONS: Final = (
    "topic",
    "timestampColumn",
    "exactlyOnce",
    "txnAppId",
    "txnVersion",
    "failOnDataLoss",
    "commitLogTopic",
)
"""Ours, besides those with a prefix."""

_LEAST_SIMILARITY: Final = 0.8
"""Of two names, as `difflib` measures it, from which on one is a mistake for the other."""
_OF_SPARK: Final = frozenset(
    name.lower()
    for name in (
        # Of Spark's Kafka source and sink (KafkaSourceProvider), in dictionaries that jobs use for both.
        *("assign", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp"),
        *("endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "groupIdPrefix"),
        *("startingOffsetsByTimestampStrategy", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("maxRecordsPerPartition", "minPartitions", "includeHeaders", "kafkaConsumer.pollTimeoutMs"),
        *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "asyncProgressTrackingEnabled"),
        "asyncProgressTrackingCheckpointIntervalMs",
        # Of every writer, or put there by Spark.
        *("checkpointLocation", "queryName", "path"),
    )
)
_warned_of: set[str] = set()


def check_names(options: Mapping[str, str]) -> None:
    """Refuse a misspelt option, and log one that is unknown: once in a process.

    A misspelt ``exactlyOnce`` would make the job at least once.

    Raises ConfigError: a name is like one of ours, or is ours with the prefix ``kafka.``.
    """
    ours = {name.lower(): name for name in OPTIONS}
    for name in options.keys() - ours.keys() - _OF_SPARK:
        setting = name.removeprefix(PREFIX)
        if setting in ProducerConfig.settings or setting in ProducerConfig.elsewhere:
            continue
        letters = re.sub(r"[^a-z0-9]", "", setting)
        near = difflib.get_close_matches(letters, ours, n=1, cutoff=_LEAST_SIMILARITY)
        near = near or [each for each in ours if len(each) > len("topic") and each in letters]
        if near:
            raise ConfigError(f"option {name}: no such option; did you mean {ours[near[0]]}?")
        if not name.startswith(PREFIX) and name not in _warned_of:
            _warned_of.add(name)
            logger.warning("Option %s is unknown, and ignored. docs/spark.md has the options.", name)


def producer_config(options: Mapping[str, str]) -> ProducerConfig:
    """Return the settings in the options with the prefix ``kafka.``.

    Raises ConfigError: an option is wrong, not supported, or lacks a prefix that it needs.
    """
    settings = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    for name, reason in _NOT_SUPPORTED.items():
        if name in settings:
            raise ConfigError(f"option {PREFIX}{name} is not supported: {reason}")
    for name in options:
        if name in ProducerConfig.settings and name not in settings:
            advice = f"option {name}: did you mean {PREFIX}{name}? The producer's settings have the prefix {PREFIX}"
            if name == "bootstrap.servers":
                raise ConfigError(advice)
            logger.warning("%s; without the prefix, the option is ignored.", advice)
    try:
        return ProducerConfig.parse(settings)
    except ConfigError as error:
        raise ConfigError(as_options(str(error), settings)) from None


def as_options(text: str, given: Mapping[str, object] = {}) -> str:
    """Rename settings in an error's text to options: ``linger.ms`` to ``kafka.linger.ms``.

    Those that the user has ``given`` are renamed even if they do not exist.
    """
    names = sorted({*ProducerConfig.settings, *ProducerConfig.elsewhere, *given}, key=len, reverse=True)
    dotted = "|".join(re.escape(name) for name in names if "." in name)
    # A name without a dot is also a word of the language: it only counts before its value, the slab's, or a colon.
    plain = "|".join(re.escape(name) for name in names if "." not in name)
    pattern = rf"(?<![\w./'\"-])(?:(?:{dotted})(?![\w-]|\.\w)|(?:{plain})(?= = |:| is \S+ there ))"
    return re.sub(pattern, rf"{PREFIX}\g<0>", text)


def with_options_named(error: ShmaccumError) -> ShmaccumError:
    """Return the task's error for one of the producer's: of the same class, with `as_options`."""
    text = as_options(str(error))
    return error if text == str(error) else type(error)(text)
