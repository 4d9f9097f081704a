from __future__ import annotations

import errno
import math
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import pytest
from batches import make_batch, with_payload
from fixture_types import MonkeyPatch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logfiles import disk_full_beyond, put_device, read_log

from shmaccum._core import ProduceBatch
from shmaccum.cluster import TopicPartition
from shmaccum.errors import (
    InvalidTopicError,
    KafkaStorageError,
    RecordBatchTooLargeError,
    UnknownTopicOrPartitionError,
)
from shmaccum.sender.log.log_transport import NODE, LogTransport
from shmaccum.sender.log.segments import BATCHES_KEPT

OpenSender = Callable[..., Any]
"""Gives conftest's ``Sender``."""


@pytest.fixture
def doorbell() -> Iterator[tuple[int, int]]:
    """A pipe: (to be waited on, to ring)."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_close_syncs_what_is_not_synced_and_closes_everything(open_sender: OpenSender, synced: list[str]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    sender = open_sender(num_partitions=2)
    sender.offsets(make_batch([b"a"]))
    synced.clear()
    sender.transport.close()
    assert synced == ["00000000000000000000.log", "t-0"]
    assert set(os.listdir("/proc/self/fd")) == before
    sender.transport.close()


def test_producer_ids_are_63_bits_and_differ(open_sender: OpenSender) -> None:
    transport = open_sender().transport
    ids = {transport.init_producer_id() for _ in range(100)}
    assert len(ids) == 100
    assert {epoch for _, epoch in ids} == {0}
    assert all(0 <= producer_id < 2**63 for producer_id, _ in ids)
    assert max(producer_id for producer_id, _ in ids) >= 2**60


# --- topics --------------------------------------------------------------------------------------


def test_a_topic_is_made_on_first_use(tmp_path: Path, open_sender: OpenSender) -> None:
    transport = open_sender(num_partitions=3, topics=()).transport
    before = transport.cluster()
    assert before.nodes == {0: NODE}
    transport.request_update(["t"])
    after = transport.cluster()
    assert (before.partition_counts, after.partition_counts) == ({}, {"t": 3})
    assert {after.leader_for(TopicPartition("t", partition)) for partition in range(3)} == {NODE}
    assert after.leader_for(TopicPartition("t", 3)) is None
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == [".lock", "t-0", "t-1", "t-2"]
    assert transport.ready(NODE, 0)
    assert transport.connection_delay_ms(NODE, 0) == 0


def test_partitions_on_disk_count_and_more_of_them_are_noticed(tmp_path: Path, open_sender: OpenSender) -> None:
    (tmp_path / "log" / "t-0").mkdir(parents=True)
    transport = open_sender(num_partitions=3).transport
    before = transport.cluster()
    assert before.partition_counts == {"t": 1}
    (tmp_path / "log" / "t-1").mkdir()
    transport.request_update(["t"])
    assert transport.cluster().partition_counts == {"t": 2}
    assert before.partition_counts == {"t": 1}
    assert len(before.leaders) == 1


def test_an_illegal_topic_is_an_answer_and_no_directory(tmp_path: Path, open_sender: OpenSender) -> None:
    transport = open_sender(topics=("../t", "t")).transport
    assert transport.cluster().topic_errors == {"../t": InvalidTopicError}
    assert transport.cluster().partition_counts == {"t": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]


def test_removed_topic_is_created_again(
    tmp_path: Path, open_sender: OpenSender, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = [TopicPartition(topic, 0) for topic in ("again", "idle", "kept")]
    topics = tuple(each.topic for each in partitions)
    sender = open_sender(topics=topics)
    assert sender.offsets(*(make_batch([b"a"], to=each) for each in partitions)) == [0, 0, 0]
    for removed in partitions[:2]:
        shutil.rmtree(tmp_path / "log" / str(removed))
    sender.transport.request_update(topics)
    again, _, kept = partitions
    assert sender.offsets(make_batch([b"b"], to=again), make_batch([b"b"], to=kept)) == [0, 1]
    sender.transport.close()
    assert read_log(tmp_path / "log" / "again-0") == [(0, b"b")]
    assert caplog.records == []


def test_removed_topic_that_cannot_be_created_stays_known(tmp_path: Path, open_sender: OpenSender) -> None:
    """What is in the way may go: its batches fail and are tried again, and those of its other partitions are stored."""
    sender = open_sender()
    known = sender.transport.cluster()
    (tmp_path / "log" / "t-0").rmdir()
    (tmp_path / "log" / "t-0").touch()
    sender.transport.request_update(["t"])
    assert sender.transport.cluster() == known
    (response,) = sender.send(make_batch([b"a"]))
    assert response.error is KafkaStorageError


def test_known_topics_stay_while_the_directory_cannot_be_searched(
    open_sender: OpenSender, monkeypatch: MonkeyPatch
) -> None:
    """As of a file system that is gone for a while."""

    def failing(path: Path) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    transport = open_sender().transport
    counts = dict(transport.cluster().partition_counts)
    monkeypatch.setattr(Path, "is_dir", failing)
    transport.request_update(["t", "new"])
    assert counts
    assert transport.cluster().partition_counts == counts
    assert transport.cluster().topic_errors == {"new": KafkaStorageError}


def test_partitions_that_are_not_there_are_unknown(open_sender: OpenSender) -> None:
    missing = [TopicPartition("t", 1), TopicPartition("u", 0)]
    responses = open_sender().send(*(make_batch([b"a"], to=each) for each in missing))
    assert [response.error for response in responses] == [UnknownTopicOrPartitionError] * 2
    assert "t-1 is not in log.dir" in responses[0].message


# --- send and poll -------------------------------------------------------------------------------


def test_batches_are_written_from_shared_memory_and_released(tmp_path: Path, open_sender: OpenSender) -> None:
    sender = open_sender()
    sender.offsets(make_batch([b"a"]))
    sealed = make_batch([b"b" * 1000])
    slab = SharedMemory(create=True, size=sealed.size)
    try:
        payload = slab.buf[: sealed.size]
        payload[:] = sealed.payload[0]
        batch = with_payload(sealed, payload)
        with disk_full_beyond(500):
            assert [response.error for response in sender.send(batch)] == [KafkaStorageError]
        assert sender.offsets(batch) == [1]
        assert payload[:8] == (1).to_bytes(8, "big")
        del batch, payload
    finally:
        slab.close()  # BufferError while anything holds on to the memory
        slab.unlink()
    assert read_log(tmp_path / "log" / "t-0") == [(0, b"a"), (1, b"b" * 1000)]


def test_the_others_go_on_where_one_partition_fails(tmp_path: Path, open_sender: OpenSender) -> None:
    sender = open_sender(num_partitions=3, segment_bytes=3000)
    batches = [
        make_batch([b"x" * size], to=TopicPartition("t", partition), producer_id=9, sequence=0)
        for partition, size in enumerate((10, 2000, 5000))
    ]
    with disk_full_beyond(1500):
        stored, full, too_large = sender.send(*batches)
    assert (stored.error, stored.base_offset, stored.batch) == (None, 0, batches[0])
    assert (full.error, full.batch) == (KafkaStorageError, batches[1])
    assert f"{tmp_path}/log/t-1/00000000000000000000.log: " in full.message
    assert "File too large" in full.message
    assert (too_large.error, too_large.batch) == (RecordBatchTooLargeError, batches[2])
    assert read_log(tmp_path / "log" / "t-1") == [], "what was written of it is cut off at once"
    assert sender.offsets(*batches[:2]) == [0, 0]
    assert [len(read_log(tmp_path / "log" / f"t-{i}")) for i in range(3)] == [1, 1, 0]


def test_many_partitions_need_few_descriptors(tmp_path: Path, open_sender: OpenSender) -> None:
    before = len(os.listdir("/proc/self/fd"))  # of tests that this process ran, too
    sender = open_sender(num_partitions=600)
    batches = [make_batch([b"0"], to=TopicPartition("t", i)) for i in range(600)]
    assert sender.offsets(*batches) == [0] * 600
    assert len(os.listdir("/proc/self/fd")) - before < 550
    assert sender.offsets(make_batch([b"1"]), make_batch([b"1"], to=TopicPartition("t", 599))) == [1, 1]
    sender.transport.close()
    assert read_log(tmp_path / "log" / "t-0") == read_log(tmp_path / "log" / "t-599") == [(0, b"0"), (1, b"1")]


def test_poll_waits_for_the_doorbell_and_leaves_it_ringing(open_sender: OpenSender, doorbell: tuple[int, int]) -> None:
    transport = open_sender().transport
    ringing = threading.Timer(0.05, os.write, (doorbell[1], b"!"))
    ringing.start()
    assert transport.poll(math.inf, doorbell[0]) == []
    assert transport.poll(1e12, doorbell[0]) == []
    assert os.read(doorbell[0], 10) == b"!"
    ringing.join()
    assert transport.poll(5, doorbell[0]) == []


# --- syncing -------------------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files and directories that were synced, in order."""
    seen: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        seen.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    monkeypatch.setattr(os, "fsync", watched)
    return seen


def test_a_new_topic_is_on_disk_before_it_is_used(open_sender: OpenSender, synced: list[str]) -> None:
    open_sender(topics=()).transport.request_update(["t"])
    assert synced == ["log", "log"]  # at the start, for what another sender left, and for the topic


def test_flush_ms_wakes_poll_from_its_wait(
    open_sender: OpenSender, doorbell: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only thing that rings the doorbell is the sync of the last of two partitions."""
    sender = open_sender(num_partitions=2, flush_ms=30)
    fsync = os.fsync

    def ringing(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("t-1/00000000000000000000.log"):
            os.write(doorbell[1], b"!")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", ringing)  # before anything is sent: on a slow machine it may be due at once
    now_ms = _now_ms()
    for partition in (0, 1):
        sender.send(make_batch([b"a"], to=TopicPartition("t", partition)), now_ms=now_ms + 10 * partition)
    assert sender.transport.poll(math.inf, doorbell[0]) == []


def test_flush_ms_counts_from_the_first_record_that_is_not_synced(open_sender: OpenSender, synced: list[str]) -> None:
    sender = open_sender(num_partitions=2, flush_ms=3_600_000)
    t0, t1 = make_batch([b"a"]), make_batch([b"b"], to=TopicPartition("t", 1))
    now_ms = _now_ms()
    synced.clear()
    sender.send(t0, now_ms=now_ms - 1_800_000)
    sender.send(t1, now_ms=now_ms - 1_800_000)
    assert synced == []
    sender.send(t0, now_ms=now_ms - 3_600_000)  # were this t0's first, it would be due
    assert synced == []
    sender.transport.close()
    assert synced == ["00000000000000000000.log", "t-0", "00000000000000000000.log", "t-1"]


def test_flush_ms_is_kept_while_answers_keep_poll_from_waiting(open_sender: OpenSender, synced: list[str]) -> None:
    sender = open_sender(flush_ms=60_000)
    synced.clear()
    sender.send(make_batch([b"a"]), now_ms=_now_ms() - 60_000)
    assert synced == ["00000000000000000000.log", "t-0"]
    sender.send(make_batch([b"b"]), now_ms=_now_ms())
    assert len(synced) == 2
    sender.transport.close()
    assert synced[2:] == ["00000000000000000000.log"]


def test_what_a_dead_sender_wrote_is_synced_too(open_sender: OpenSender, synced: list[str]) -> None:
    batch = make_batch([b"a"], producer_id=9, sequence=0)
    sender = open_sender()
    sender.offsets(batch)
    sender.transport.close()
    synced.clear()
    sender = open_sender(flush_ms=60_000)
    (answer,) = sender.send(batch, now_ms=_now_ms() - 60_000)
    assert (answer.batch, answer.base_offset, answer.error) == (batch, 0, None)
    assert synced[-2:] == ["00000000000000000000.log", "t-0"]


def test_failed_flush_is_logged_and_others_go_on(
    tmp_path: Path, open_sender: OpenSender, synced: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    sender = open_sender(num_partitions=2)
    segment = tmp_path / "log" / "t-0" / "00000000000000000000.log"
    sender.offsets(make_batch([b"a"]), make_batch([b"a"], to=TopicPartition("t", 1)))
    put_device(segment, "/dev/null")
    synced.clear()
    sender.transport.close()
    assert f"acknowledged records may not be on disk: {segment}: cannot sync 1 records: Invalid" in caplog.text
    assert synced == ["00000000000000000000.log", "t-1"]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), magic=st.sampled_from([1, 2]), segment_bytes=st.integers(200, 1000))
def test_any_run_of_sends_failures_resends_and_deaths_gives_the_records_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, magic: int, segment_bytes: int
) -> None:
    log_dir = tmp_path_factory.mktemp("log")
    stored: list[bytes] = []
    transport: LogTransport | None = None
    recent: deque[tuple[int, ProduceBatch]] = deque(maxlen=BATCHES_KEPT)
    for step in [*data.draw(st.lists(st.sampled_from(["send", "fail", "resend", "die"]), max_size=15)), "send"]:
        if transport is None:
            transport = LogTransport(log_dir, 1, segment_bytes, 1 << 62, 1 << 62, magic)
            transport.start()
            transport.request_update(["t"])
        if step == "die":
            transport.close()
            transport = None
            if data.draw(st.booleans()) and (segments := sorted((log_dir / "t-0").iterdir())):
                with segments[-1].open("ab") as file:
                    file.write(data.draw(st.binary(max_size=70)))
        elif step == "resend":
            if magic == 2 and recent:
                offset, batch = data.draw(st.sampled_from(list(recent)))
                transport.send(NODE, [batch], 0)
                (response,) = transport.poll(0, -1)
                assert (response.error, response.base_offset) == (None, offset)
        else:
            values = [b"%d" % (len(stored) + i) for i in range(data.draw(st.integers(1, 4)))]
            identity = {"producer_id": 9, "sequence": len(stored)} if magic == 2 else {}
            batch = make_batch(values, magic=magic, **identity)
            with disk_full_beyond(data.draw(st.integers(0, 300)) if step == "fail" else 1 << 40):
                transport.send(NODE, [batch], 0)
            (response,) = transport.poll(0, -1)
            if response.error is None:
                assert response.base_offset == len(stored)
                recent.append((len(stored), batch))
                stored += values
            else:
                assert step == "fail"
    assert transport is not None
    transport.close()
    assert read_log(log_dir / "t-0") == list(enumerate(stored))
