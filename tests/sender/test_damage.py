"""A sender that meets damage: one batch is given up alone, what cannot be gone on with is told to producers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pieces import StartRun
from producers import kill_sender, settings_of, wait_until_gone
from senders import HandRun, read_values

from shmaccum import Producer
from shmaccum.cluster import TopicPartition
from shmaccum.errors import CorruptRecordError, SenderError
from shmaccum.shm.layout import COMMIT_SIZE_SHIFT, Process, Slot

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def header_of(run: HandRun, to: TopicPartition) -> int:
    batch = run.accumulator.map.queues[to].first()
    assert batch is not None
    return run.slab.geometry.header(batch.slot)


WRONG: dict[str, tuple[int, int]] = {
    "more bytes than its slot has": (Slot.COMMIT, 1 << 30 << COMMIT_SIZE_SHIFT | 1 << 1),
    "no bytes at all": (Slot.COMMIT, 0),
    "no records": (Slot.COMMIT, 100 << COMMIT_SIZE_SHIFT),
    "a time that no batch has": (Slot.BASE_TIMESTAMP, (1 << 64) - 1),
    "more compressed bytes than its slot has": (Slot.COMPRESSED, 1 << 40),
    "more records settled than there are": (Slot.SETTLED, 9),
    "a compression that there is not": (Slot.COMPRESSED, 100 << 8 | 7),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_batch_that_cannot_be_is_given_up_alone(
    start_run: StartRun, log_dir: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    run = start_run()
    word, value = WRONG[what]
    damaged = run.accumulator.append(T0, 1, None, b"damaged").future
    sound = run.accumulator.append(T1, 1, None, b"sound").future
    run.slab.words[header_of(run, T0) + word] = value
    with caplog.at_level(logging.ERROR):
        run.run(3)
    run.accumulator.acks.poll()
    assert isinstance(damaged.exception, CorruptRecordError)
    assert sound.get(0).offset == 0
    assert "is damaged" in caplog.text
    after = run.accumulator.append(T0, 1, None, b"after").future
    run.run(4)
    run.accumulator.acks.poll()
    assert after.get(0).offset == 0
    assert (read_values(log_dir, "t", 0), read_values(log_dir, "t", 1)) == ([b"after"], [b"sound"])
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory


def test_producers_are_told_why_no_sender_can_serve(slab_name: str, tmp_path: Path) -> None:
    log_file = tmp_path / "sender.log"
    producer = Producer(settings_of(slab_name, tmp_path / "log", sender_log_file=str(log_file)))
    producer.send("t", b"first").get(30)
    kill_sender(producer)
    damaged = producer._slab.geometry.process(9) + Process.WANTS
    producer._slab.words[damaged] = 99
    said = "is damaged: word WANTS of process entry 9 is 99"
    for _ in range(2):
        with pytest.raises(SenderError, match=said):
            producer.send("t", bytes(30_000), partition=0)
    assert said in log_file.read_text()
    producer._slab.words[damaged] = 0
    producer.close(30)
    wait_until_gone(slab_name)
