"""The figures of a streaming query, from what Spark reports of its micro-batches."""

from __future__ import annotations

import pytest

from tools.benchmark.contestants import OURS
from tools.benchmark.cpu import BROKER, JVM, SENDER, WORKERS, Usage
from tools.benchmark.settings import Settings
from tools.benchmark.spark.jobs import EXACTLY_ONCE, SPARK_SINK, Job, MicroBatch, Query, data_source
from tools.benchmark.spark.session import QUERY_FIGURES, query_figures

QUERY = Query(Job(OURS, 8, 1_000_000, 100, "localhost:9092", "t", Settings()), interval_s=10.0, measured=3)
USED = Usage({WORKERS: 1.5, SENDER: 0.6, JVM: 3.9, BROKER: 9.0}, system_s=0.0)


def test_wall_time_has_the_pauses_and_all_else_is_of_one_micro_batch() -> None:
    found = [MicroBatch(1000.0, 2.0, 1.5), MicroBatch(1010.0, 3.0, 2.5), MicroBatch(1020.0, 4.0, 3.5)]
    figures = query_figures(QUERY, found, USED)
    assert figures["wall_s"] == 24.0
    assert (figures["took_s"], figures["took_most_s"], figures["add_batch_s"]) == (3.0, 4.0, 2.5)
    assert (figures["cpu_s"], figures["cpu_jvm_s"], figures["broker_cpu_s"]) == pytest.approx((2.0, 1.3, 3.0))
    assert figures["cpu_us_per_record"] == pytest.approx(2.0)
    assert (figures["records"], figures["late"]) == (3e6, 0.0)
    assert set(QUERY_FIGURES) <= set(figures)


def test_micro_batches_that_the_one_before_delayed_are_late() -> None:
    found = [MicroBatch(1000.2, 9.0, 9.0), MicroBatch(1010.0, 12.0, 12.0), MicroBatch(1022.0, 4.0, 4.0)]
    assert query_figures(QUERY, found, USED)["late"] == 1.0


@pytest.mark.parametrize(
    ("how", "name", "is_once"),
    [(EXACTLY_ONCE, "shmaccum", True), (OURS, "shmaccum", False), (SPARK_SINK, "kafka", False)],
)
def test_contestants_differ_in_format_and_promise_alone(how: str, name: str, is_once: bool) -> None:
    found, options = data_source(QUERY.job._replace(how=how), "a-slab")
    assert found == name
    assert ("exactlyOnce" in options) == is_once
    assert options["kafka.linger.ms"] == "5"
    assert (options["topic"], options["kafka.bootstrap.servers"]) == ("t", "localhost:9092")
    assert ("kafka.shmaccum.name" in options) == (name == "shmaccum")
