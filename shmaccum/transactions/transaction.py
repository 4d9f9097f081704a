"""One transaction, as the calls see it that send in it.

A call of ``send`` takes the transaction that is open when it begins, and gets its deques from that one only. So a call
that waits, for memory or metadata or in a serializer, never appends to a later transaction. Deques that it already has
refuse its records by the lane's GENERATION (`PartitionQueue.check_lease`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from shmaccum._core import Destination, StickyPartition
from shmaccum.accumulator.append.record_appender import Route
from shmaccum.accumulator.state.partition_queue import PartitionQueue


class Transaction:
    """The partitions of one transaction.

    Args:
        add: adds partitions to this transaction; raises if it is not the one that is open.
        outside: returns the deque outside of transactions, given one of the lane.

    Attributes:
        queues: partition entry outside of transactions -> the lane's deque.
        destinations: the topics to which records can go in this transaction without a question, by name.
    """

    def __init__(
        self,
        add: Callable[[Transaction, Iterable[PartitionQueue]], None],
        outside: Callable[[PartitionQueue], PartitionQueue],
    ) -> None:
        self.queues: Final[dict[int, PartitionQueue]] = {}
        self.destinations: Final[dict[str, Destination]] = {}
        self._routes: Final[dict[int, _LaneRoute]] = {}
        self._add = add
        self._outside = outside

    def queue(self, of: PartitionQueue) -> PartitionQueue:
        """Return the deque for a record, given the one outside of transactions.

        Raises KafkaError: the transaction has ended or failed.
        """
        queue = self.queues.get(of.entry)
        return self.queues_for([of])[0] if queue is None else queue

    def queues_for(self, of: Iterable[PartitionQueue]) -> list[PartitionQueue]:
        """As `queue`, for several partitions."""
        while True:
            found = [self.queues.get(queue.entry) for queue in of]
            in_lane = [queue for queue in found if queue is not None]
            if len(in_lane) == len(found):
                return in_lane
            self._add(self, of)

    def route(self, route: Route) -> Route:
        """Return a route that leads to the lane's deques."""
        known = self._routes.get(id(route))
        if known is None:
            known = self._routes[id(route)] = _LaneRoute(route, self)  # it keeps the route, so none has its id
        return known

    def learn(
        self,
        generation: int,
        topic: str,
        count: int,
        number: int,
        queue: PartitionQueue,
        sticky: StickyPartition | None,
    ) -> None:
        """Let the next records of a partition be appended without a question."""
        known = self.destinations.get(topic)
        if known is None or known.generation != generation or (sticky is not None and known.sticky is None):
            known = Destination(generation, count, sticky, queue.lane, queue.lease_generation)
            self.destinations[topic] = known
        known.lead(number, queue.entry)

    def forget(self) -> None:
        """Forget the partitions: each call has to ask for them again, and is refused after the transaction's end."""
        self.queues.clear()
        self.destinations.clear()
        self._routes.clear()


class _LaneRoute:
    """Leads where another route leads, in a transaction."""

    def __init__(self, route: Route, transaction: Transaction) -> None:
        self._route = route
        self._transaction = transaction

    def reroute(self, queue: PartitionQueue) -> PartitionQueue:
        """Return the lane's deque of the partition that the route leads to, given another one of the lane."""
        return self._transaction.queue(self._route.reroute(self._transaction._outside(queue)))
