"""A batch, as the sender's Python code sees it: the words of `shmaccum._core.RecordBatch` in terms of the package."""

from __future__ import annotations

from shmaccum import _core
from shmaccum._core import LIMITS_SHIFT
from shmaccum.errors import CorruptRecordError
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchMemory
from shmaccum.shm.layout import LIMITS_MASK, SlotState


class RecordBatch(_core.RecordBatch):
    """The batch in one slot (``ProducerBatch`` in Kafka, ``RecordBatch`` before)."""

    __slots__ = ()

    def __repr__(self) -> str:
        part = f", {self.completed} of them complete" if self.is_split else ""
        return f"<RecordBatch in slot {self.slot}: {SlotState(self.state).name}, {self.record_count} records{part}>"

    @property
    def timeout_ms(self) -> int:
        """Age, in milliseconds, at which it expires: the longest ``delivery.timeout.ms`` of its producers."""
        return self.limits & LIMITS_MASK

    @property
    def retries(self) -> int:
        """How often it can be sent again: the most ``retries`` of its producers."""
        return self.limits >> LIMITS_SHIFT

    @property
    def wanted_compression(self) -> CompressionType:
        """The compression that its first producer wants. Raises CorruptRecordError: the header has an unknown one."""
        return CompressionType.for_attributes(self.wanted)

    def check(self, header_size: int) -> None:
        """Validate what sealing needs of the header, with ``header_size`` bytes before the records.

        Raises CorruptRecordError: a word is damaged.
        """
        if not self.is_sound(header_size):
            buffer = self.buffer()
            raise CorruptRecordError(
                f"slot {self.slot} is damaged: {self.record_count} records in {self.size} bytes, "
                f"{buffer.slots} slots; {self.completed} records complete; "
                f"first timestamp {self.base_timestamp} ms, largest {self.max_timestamp} ms; "
                f"sequence {self.base_sequence} of epoch {self.producer_epoch} of producer id {self.producer_id}"
            )

    def memory(self) -> BatchMemory:
        """Return writable views of its `size` bytes in the slab, one for each run of slots.

        Raises CorruptRecordError: its chain of slots is broken.
        """
        views = self.views()
        if views is None:
            raise CorruptRecordError(f"the chain of {self.buffer().slots} slots from slot {self.slot} on is broken")
        return views
