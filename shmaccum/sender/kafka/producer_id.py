"""Requests producer ids, by which brokers recognise resent batches."""

from __future__ import annotations

import logging
from typing import Any, Final

from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, NetworkError, error_for_code
from shmaccum.kafka.codec import ApiMessage
from shmaccum.kafka.handshake import SMALL_ANSWER
from shmaccum.kafka.messages import INIT_PRODUCER_ID
from shmaccum.kafka.poller import FOREVER_MS, ExponentialBackoff, monotonic_ms

logger = logging.getLogger(__name__)

_NO_TRANSACTIONS_MS: Final = 2**31 - 1


class ProducerIds:
    """Gets one producer id at a time, on demand."""

    def __init__(self, config: ProducerConfig) -> None:
        self.apply(config)
        self._wanted = False
        self._under_way = False
        self._attempts = 0
        self._not_before_ms = 0.0
        self._refused: type[KafkaError] | None = None
        self._answer: tuple[int, int] | None = None

    def apply(self, config: ProducerConfig) -> None:
        """Use these settings from now on."""
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def take(self) -> tuple[int, int] | None:
        """Return a new producer id and its epoch; if there is none, request one and return None."""
        answer, self._answer = self._answer, None
        self._wanted = answer is None
        return answer

    def failure(self) -> type[KafkaError] | None:
        """Return why the cluster refused one; None once the next attempt is due."""
        return self._refused if self._refused is None or monotonic_ms() < self._not_before_ms else None

    def due_ms(self) -> float:
        """Return when to ask."""
        return self._not_before_ms if self._wanted and not self._under_way else FOREVER_MS

    def request(self, now_ms: float) -> ApiMessage:
        """Return the request to send now."""
        self._under_way = True
        return INIT_PRODUCER_ID.of(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTIONS_MS)

    def largest_answer(self) -> int:
        """Return the most bytes of the answer."""
        return SMALL_ANSWER

    def update(self, response: Any, now_ms: float) -> None:
        """Store an answer. Raises NetworkError: it holds neither a valid id nor an error."""
        error = error_for_code(response.error_code) if response.error_code else None
        if error is None and not (response.producer_id >= 0 <= response.producer_epoch):
            raise NetworkError(f"impossible producer id {response.producer_id}, epoch {response.producer_epoch}")
        self._under_way = False
        self._refused = None if error is None or error.retriable else error
        if error is None:
            self._answer = (response.producer_id, response.producer_epoch)
            self._wanted = False
            self._attempts = 0
        else:
            logger.warning("no producer id: %s", error.__name__, extra={"seldom": ("producer id", error)})
            self._again(now_ms)

    def failed(self, now_ms: float) -> None:
        """Note that a request got no answer."""
        self._under_way = False
        self._again(now_ms)

    def _again(self, now_ms: float) -> None:
        self._attempts += 1
        self._not_before_ms = now_ms + self._backoff.wait_ms(self._attempts)
