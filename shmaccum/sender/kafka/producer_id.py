"""Producer ids, which a broker gives out: by them and by sequence numbers it knows a batch that comes again."""

from __future__ import annotations

import logging
from typing import Any, Final

from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, NetworkError, error_for_code
from shmaccum.sender.kafka.handshake import SMALL_ANSWER
from shmaccum.sender.kafka.kafka_python import InitProducerIdRequest
from shmaccum.sender.kafka.timing import FOREVER_MS, ExponentialBackoff

logger = logging.getLogger(__name__)

_NO_TRANSACTIONS_MS: Final = 2**31 - 1


class ProducerIds:
    """Gets one producer id at a time, when it is asked for one.

    Args:
        config: the settings.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.apply(config)
        self._wanted = False
        self._under_way = False
        self._attempts = 0
        self._not_before_ms = 0.0
        self._refused: type[KafkaError] | None = None
        self._answer: tuple[int, int] | None = None

    def apply(self, config: ProducerConfig) -> None:
        """Work by these settings from now on."""
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def take(self) -> tuple[int, int] | None:
        """Return a new producer id and its epoch; None, and see to it that one is asked for, where there is none."""
        answer, self._answer = self._answer, None
        self._wanted = answer is None
        return answer

    def failure(self, now_ms: float) -> type[KafkaError] | None:
        """Return why the cluster gives us none, as long as it was not asked again."""
        return self._refused if now_ms < self._not_before_ms else None

    def due_ms(self) -> float:
        """Return when to ask."""
        return self._not_before_ms if self._wanted and not self._under_way else FOREVER_MS

    def request(self, now_ms: float) -> Any:
        """Return the request to send now."""
        self._under_way = True
        return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTIONS_MS)

    def largest_answer(self) -> int:
        """Return how many bytes the answer can need."""
        return SMALL_ANSWER

    def update(self, response: Any, now_ms: float) -> None:
        """Take over an answer.

        Raises:
            NetworkError: it gives no id, and no error either.
        """
        error = error_for_code(response.error_code) if response.error_code else None
        if error is None and not (response.producer_id >= 0 <= response.producer_epoch):
            raise NetworkError(f"a broker gave producer id {response.producer_id}, epoch {response.producer_epoch}")
        self._under_way = False
        self._refused = None if error is None or error.retriable else error
        if error is None:
            self._answer = (response.producer_id, response.producer_epoch)
            self._wanted = False
            self._attempts = 0
        else:
            logger.warning("no producer id: %s", error.__name__)
            self._again(now_ms)

    def failed(self, now_ms: float) -> None:
        """Note that a request was not answered."""
        self._under_way = False
        self._again(now_ms)

    def _again(self, now_ms: float) -> None:
        self._attempts += 1
        self._not_before_ms = now_ms + self._backoff.wait_ms(self._attempts)
