"""The sender's log has one line a minute of each kind of failure, and the number of those left out."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from fake_broker import FakeBroker, produced
from producers import settings_of, wait_until_gone
from senders import HandRun

from shmaccum import Producer
from shmaccum.errors import InvalidRecordError
from shmaccum.sender.logfile import SELDOM, SELDOM_S, Seldom
from tools.support.messages import PRODUCE

INVALID_RECORD, NOT_ENOUGH_REPLICAS = 87, 19


def assert_one_of_20(log: Path, text: str) -> None:
    """Assert that the log has one of 20 lines, and at its end how many are left out."""
    shown = [line for line in log.read_text().splitlines() if text in line]
    assert [line.endswith(" (19 more like it since then)") for line in shown] == [False, True]


def test_refused_and_retried_batches_are_one_line_each(fake: FakeBroker, slab_name: str, tmp_path: Path) -> None:
    log = tmp_path / "sender.log"
    answers = iter([NOT_ENOUGH_REPLICAS] * 20 + [0] + [INVALID_RECORD] * 20)
    fake.answers[PRODUCE] = lambda request: produced((0, next(answers)))
    settings = settings_of(slab_name, "", transport="kafka", bootstrap_servers=fake.servers, sender_log_file=log)
    with Producer(settings | {"retry.backoff.ms": 1, "retry.backoff.max.ms": 1}) as producer:
        producer.send("t", b"v", partition=0).get(20)
        for _ in range(20):
            assert isinstance(producer.send("t", b"v", partition=0).exception(20), InvalidRecordError)
    wait_until_gone(slab_name)
    assert_one_of_20(log, "; retrying 1 records of t-0")
    assert_one_of_20(log, "InvalidRecordError for t-0; failed 1 records of t-0")


def test_the_last_lines_of_a_burst_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Else they are missing until the next one of the kind, which can be never."""
    seldom = Seldom(lambda: now_s)
    now_s = 0.0

    def log(kind: str | None) -> str:
        """Return what is shown of a line."""
        record = logging.makeLogRecord({"name": "of_sender", "levelno": logging.ERROR, "msg": f"{kind} failed"})
        vars(record)["seldom"] = kind
        first, second = seldom.filter(record), seldom.filter(record)  # of two handlers
        assert first == second
        return record.getMessage() if first else ""

    assert [log(kind) for kind in ("a", "a", "b", None, None)] == ["a failed", "", "b failed", *["None failed"] * 2]
    seldom.count_dropped()
    assert not caplog.records
    now_s = SELDOM_S
    log("b")
    log("b")
    for _ in range(2):
        seldom.count_dropped()
        assert [(each.name, each.levelname) for each in caplog.records] == [("of_sender", "ERROR")]
        assert caplog.messages == ["a failed (1 more like it since then)"]
    log("a")
    seldom.count_dropped(of_all=True)
    assert caplog.messages[1:] == ["a failed (1 more like it since then)", "b failed (1 more like it since then)"]
    assert [log("a") for _ in range(1234)] == [""] * 1234
    now_s = 3 * SELDOM_S
    assert log("a") == "a failed (1,234 more like it since the last such line)"


def test_a_sender_counts_them_a_minute_later(
    run: HandRun, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(SELDOM, "clock", lambda: now_s)
    for number in range(3):
        record = logging.makeLogRecord({"levelno": logging.ERROR, "msg": f"line {number}", "seldom": "of a burst"})
        SELDOM.filter(record)
    now_s += SELDOM_S
    run.run(1, after_ms=60_000)
    assert "line 0 (2 more like it since then)" in caplog.messages
