"""Who compresses, and at which level; and compression under load, where processes stop, and die."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from fixture_types import Link, Produce, Settings, Start
from producers import kill_sender, wait_until, wait_until_gone
from senders import read_topic

from shmaccum import Producer
from shmaccum.accumulator.drain.compression_ahead import AHEAD_SIZE
from shmaccum.record.fields import entry_end
from shmaccum.record.format import iter_batches
from shmaccum.shm.layout import Role

PARTITIONS = 3
ROUND = 600
"""Records that a process sends between two looks at whether it is to end."""
NAMES = (b"whole", b"stopped", b"killed")
FILLER = b"the quick brown fox jumps over the lazy dog "


def numbers_of(log_dir: Path, name: bytes) -> dict[int, list[int]]:
    """Return the numbers of a process's records as they are in the log, by partition."""
    return {
        partition: [int(record.value.split(b":")[1]) for record in records if record.value.startswith(name + b":")]
        for partition, records in read_topic(log_dir, "t").items()
    }


@pytest.mark.parametrize(
    ("who", "codec", "low", "high"),
    [("sealer", "gzip", 1, 9), ("thread", "lz4", 9, 12), ("rows", "zstd", 1, 19)],
)
def test_all_compress_at_the_set_level(
    who: str, codec: str, low: int, high: int, settings: Settings, log_dir: Path
) -> None:
    text = b" ".join(b"%d" % (number * number % 997) for number in range(20_000))
    values = [text[start : start + 500] for start in range(0, 7000 if who == "sealer" else len(text), 500)]
    sizes = []
    for level in (low, high):
        directory = log_dir.with_name(f"level-{level}")
        changes = {"compression_type": codec, f"compression_{codec}_level": level, "num_partitions": 1}
        config = settings(**changes, linger_ms=60_000, batch_size=1 << 17)
        config |= {"log.dir": str(directory)}
        with Producer(config) as producer:
            if who == "rows":
                producer.send_batch("t", pa.record_batch([pa.array(values, pa.binary())], names=["value"]))
            else:
                for value in values:
                    producer.send("t", value)
            producer.flush(30)
        wait_until_gone(str(config["shmaccum.name"]))
        assert [record.value for record in read_topic(directory, "t")[0]] == values
        (segment,) = directory.glob("t-0/*.log")
        sizes.append(entry_end(memoryview(segment.read_bytes()), 0))  # of the first batch: the last one is the sender's
    assert sizes[0] > sizes[1]


def test_deaths_and_stops_keep_every_record_once_in_order(
    produce: Produce, start: Start, settings: Settings, log_dir: Path
) -> None:
    """Of three producers one is stopped for a while and one killed; and the sender is killed."""
    changes = {"compression_type": "gzip", "num_partitions": PARTITIONS, "batch_size": 2 * AHEAD_SIZE}
    changes |= {"buffer_memory": 16 * AHEAD_SIZE}
    config, producer = settings(**changes), produce(**changes)
    producer.partitions_for("t")

    def send_until_told(link: Link, name: bytes) -> int:
        """Send records by number until told to end; return how many there were, all of them acknowledged."""
        futures = []
        with Producer(config) as producer:
            while not link.poll():
                for number in range(len(futures), len(futures) + ROUND):
                    filler = FILLER * (number % 7) + (os.urandom(number % 50) if number % 3 == 0 else b"")
                    futures.append(
                        producer.send("t", b"%b:%d:%b" % (name, number, filler), partition=number % PARTITIONS)
                    )
                if len(futures) == ROUND:
                    link.send("on the way")
        assert all(future.succeeded() for future in futures)
        return len(futures)

    whole, stopped, killed = (start(partial(send_until_told, name=name), how="fork") for name in NAMES)
    for each in (whole, stopped, killed):
        assert each.hear() == "on the way"
    stopped.signal(signal.SIGSTOP)
    killed.kill()
    kill_sender(producer)
    time.sleep(0.1)  # the others are waiting for the stopped one now, or not
    stopped.signal(signal.SIGCONT)
    producer.send("t", b"last:0:", partition=0).get(30)  # finds that there is no sender, and starts one
    for each in (whole, stopped):
        each.tell()
    sent = [whole.result(), stopped.result()]
    # What a dead one had begun is delivered, too, and its memory taken back, in the sender's own time.
    pool = producer._accumulator.state.pool
    wait_until(lambda: pool.available_memory() == pool.total_memory, "all is delivered, and all memory free")

    of_whole, of_stopped, of_killed = (numbers_of(log_dir, name) for name in NAMES)
    for found, count in zip((of_whole, of_stopped), sent, strict=True):
        assert found == {number: list(range(number, count, PARTITIONS)) for number in range(PARTITIONS)}
    in_all = sorted(number for numbers in of_killed.values() for number in numbers)
    assert in_all == list(range(len(in_all)))
    assert all(numbers == sorted(numbers) for numbers in of_killed.values())

    slab = producer._slab
    infos = map(slab.processes.info, range(slab.geometry.max_processes))
    assert sum(info.compressed for info in infos if Role.SENDER in info.roles) > 0
    logs = [memoryview(path.read_bytes()) for path in log_dir.glob("t-*/*.log")]
    assert max(batch.record_count for log in logs for batch in iter_batches(log)) > 250, "some were large"
    assert producer.metrics()["slab-metrics"]["compression-rate-avg"] < 0.9
