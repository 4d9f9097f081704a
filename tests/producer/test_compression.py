"""Who compresses, and at which level."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fixture_types import Settings
from producers import wait_until_gone
from senders import read_topic

from shmaccum import Producer
from shmaccum._core import Process
from shmaccum.record.fields import entry_end


@pytest.mark.parametrize(
    ("who", "codec", "low", "high"),
    [("producer", "zstd", 1, 19), ("sealer", "gzip", 1, 9), ("thread", "lz4", 9, 12), ("thread", "zstd", 1, 19)],
)
def test_all_compress_at_the_set_level(
    who: str, codec: str, low: int, high: int, settings: Settings, log_dir: Path
) -> None:
    """Columns are the producer's to compress, a large batch of records that of a thread of the sender."""
    text = b" ".join(b"%d" % (number * number % 997) for number in range(20_000))
    values = [text[start : start + 500] for start in range(0, 7000 if who == "sealer" else len(text), 500)]
    sizes = []
    for level in (low, high):
        directory = log_dir.with_name(f"level-{level}")
        changes = {"compression_type": codec, f"compression_{codec}_level": level, "num_partitions": 1}
        config = settings(**changes, linger_ms=60_000, batch_size=8192 if who == "producer" else 1 << 17)
        config |= {"log.dir": str(directory)}
        with Producer(config) as producer:
            if who == "producer":
                producer.send_batch("t", pa.record_batch([pa.array(values, pa.binary())], names=["value"]))
            else:
                for value in values:
                    producer.send("t", value)
            producer.flush(30)
            compressed = producer._slab.words[producer._slab.geometry.process(producer._slab.me) + Process.COMPRESSED]
            assert (compressed > 0) == (who == "producer")
        wait_until_gone(str(config["shmaccum.name"]))
        assert [record.value for record in read_topic(directory, "t")[0]] == values
        (segment,) = directory.glob("t-0/*.log")
        sizes.append(entry_end(memoryview(segment.read_bytes()), 0))  # of the first batch: the last one is the sender's
    assert sizes[0] > sizes[1]
