"""A slab whose producer and sender are one process, to measure either half without the other's process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shmaccum.accumulator.state.accumulator_state import attach_for
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError
from shmaccum.sender.process import make_transport
from shmaccum.sender.sender import Sender
from shmaccum.shm.lifecycle import detach
from shmaccum.shm.wakeup import Doorbell
from tools.support.accumulators import Accumulators


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class OwnSlab:
    """Attached by this process; `close` detaches it."""

    def __init__(self, settings: dict[str, object]) -> None:
        self.config: Final = ProducerConfig.parse({"bootstrap.servers": "127.0.0.1:1"} | settings)
        self.slab: Final = attach_for(self.config)
        self.accumulator: Final = Accumulators(self.slab, self.config)

    def close(self) -> None:
        self.accumulator.sender.recover()
        self.accumulator.sender.abort_incomplete_batches(KafkaError)
        self.slab.reap_dead()
        detach(self.slab)

    @contextmanager
    def sending(self, topic: str, partitions: int) -> Iterator[tuple[Sender, Doorbell]]:
        """Be the sender, which knows the topic's partitions when the block begins."""
        transport = make_transport(self.config)
        transport.start()
        doorbell = self.slab.become_sender()
        sender = Sender(self.accumulator.sender, transport, doorbell, self.config)
        self.accumulator.map.request(topic)
        try:
            while TopicPartition(topic, partitions - 1) not in self.accumulator.map.queues:
                sender.run_once(now_ms())
                self.accumulator.map.refresh()
            yield sender, doorbell
        finally:
            transport.close()
            self.slab.resign_as_sender(doorbell)
