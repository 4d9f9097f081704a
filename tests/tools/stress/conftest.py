"""What producers have appended, with their accounts and the log: without kills, so that all of it is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from producers import settings_of, wait_until_gone

from shmaccum import Producer
from tools.stress.account import Account, all_accounts
from tools.stress.load import Load, Writer
from tools.stress.options import TOPICS
from tools.support.reading import Stored, read_log

PARTITIONS = 3
WRITERS = (1, 2, 3)


class Scene(NamedTuple):
    log_dir: Path
    accounts: list[Account]
    records: list[Stored]


@pytest.fixture
def scene(tmp_path: Path, slab_name: str) -> Iterator[Scene]:
    """Some hundred records of three writers, by `send` and `send_batch`, all acknowledged."""
    settings = settings_of(slab_name, tmp_path / "log", num_partitions=PARTITIONS, batch_size=4096)
    load = Load(settings, tmp_path, PARTITIONS, record_size=100, columns=0.1, rate=0, seed=1)
    with Producer(settings) as producer:
        writers = [Writer(load, producer, writer) for writer in WRITERS]
        for _ in range(40):
            for writer in writers:
                writer.append_once()
        producer.flush(30)
        for writer in writers:
            writer.settle()
            writer.account.note_closed()
            writer.account.close()
    wait_until_gone(slab_name)
    problems: list[str] = []
    records = list(read_log(tmp_path / "log", problems, TOPICS))
    assert not problems
    accounts = all_accounts(tmp_path)
    yield Scene(tmp_path / "log", accounts, records)
    for account in accounts:
        account.close()
