from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Reader, Start

from shmaccum import ProducerConfig
from shmaccum.errors import ConfigError
from shmaccum.spark import producer

PROGRAM = """
import os, signal
from shmaccum.spark import producer
for number in range(1000):
    producer({settings!r}).send("t", b"%d" % number, partition=0)
{end}
"""


def test_a_process_has_one_producer_for_a_configuration(config: ProducerConfig) -> None:
    explicit = {name: config[name] for name in config.explicit}
    assert producer(config) is producer(config)
    assert producer(config) is producer(dict(reversed(explicit.items())))
    with producer(explicit | {"max.block.ms": "7"}) as other:
        assert other is not producer(config)


def test_the_garbage_of_a_process_that_is_no_worker_is_its_own_business(config: ProducerConfig) -> None:
    before = gc.get_freeze_count()
    assert producer(config) is producer(config)
    assert gc.get_freeze_count() == before


def test_a_closed_one_is_replaced(config: ProducerConfig) -> None:
    with producer(config) as first:
        first.send("t", b"1")
    second = producer(config)
    assert second is not first
    first.close()
    assert producer(config) is second
    assert second.send("t", b"2").get(10).topic == "t"


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lingr\.ms"):
        producer({"transport": "log", "log.dir": "/nowhere", "lingr.ms": "5"})


def test_a_forked_child_goes_on_and_its_end_does_not_matter(
    config: ProducerConfig, start: Start, stored: Reader
) -> None:
    producer(config).send("t", b"parent", partition=0).get(10)
    assert start(send_and_close, config, how="fork").result() == 1
    assert producer(config).send("t", b"parent again", partition=0).get(10).offset == 2
    values = [record.value for record in stored(Path(config.log_dir), "t")]
    assert values == [b"parent", b"child", b"parent again"]


def send_and_close(link: Any, config: ProducerConfig) -> int:
    with producer(config) as mine:
        return mine.send("t", b"child", partition=0).get(10).offset


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"], ids=["exits", "is killed"])
def test_what_a_worker_has_sent_is_delivered_when_it(
    end: str, configure: Callable[..., ProducerConfig], stored: Reader, until_gone: Callable[..., None]
) -> None:
    config = configure(linger_ms=2_000)
    settings = {name: config[name] for name in config.explicit}
    subprocess.run([sys.executable, "-c", PROGRAM.format(settings=settings, end=end)], check=not end, timeout=60)
    if end:
        until_gone(config.slab_name(os.geteuid()))
    # A process that exits has waited for it.
    assert [record.value for record in stored(Path(config.log_dir), "t")] == [b"%d" % i for i in range(1000)]
