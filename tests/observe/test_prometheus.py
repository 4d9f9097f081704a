"""What Prometheus sees of slabs: right values, counters that never fall, and no slab that breaks a scrape."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixture_types import Link, Start
from histograms import bucket_of
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_until
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from slab_helpers import overwrite
from slab_settings import Settings

from shmaccum import Producer
from shmaccum._core import HISTOGRAM_BUCKETS, INCIDENTS, WORD, Geometry, Partition, Super, Topic
from shmaccum.cluster import Node
from shmaccum.errors import LeaderNotAvailableError, NetworkError
from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Kind, histogram, series_of
from shmaccum.observe.prometheus import SlabCollector, exposition
from shmaccum.observe.report import report
from shmaccum.shm import names
from shmaccum.shm.broker_table import BrokerJournal
from shmaccum.shm.distribution import Distribution
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.layout import TopicState
from shmaccum.shm.lifecycle import attach, detach, unlink
from shmaccum.shm.slab import Slab

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
GEOMETRY = Geometry(64, 8, max_processes=4, max_topics=4, max_partitions=4)
LINGERS = {"linger.ms": 600_000, "delivery.timeout.ms": 700_000}


def scrape(collector: SlabCollector, accept: str = "") -> Values:
    """Return all values of a scrape by name and labels, as prometheus_client's parser reads them."""
    text = exposition(collector, accept).content.decode()
    families = parse_openmetrics(text) if accept else parse(text)
    found: Values = {}
    for sample in (sample for family in families for sample in family.samples):
        key = (sample.name, frozenset(sample.labels.items()))
        assert key not in found
        found[key] = sample.value
    return found


def total(values: Values, name: str, **labels: str) -> float:
    """Return the sum of the series of a name that have these labels."""
    return sum(value for (each, of), value in values.items() if each == name and labels.items() <= dict(of).items())


def counters(values: Values) -> Values:
    """Return the values that must never fall."""
    return {key: value for key, value in values.items() if key[0].endswith(("_total", "_bucket", "_count", "_sum"))}


def work(link: Link, settings: Settings, records: int) -> None:
    with Producer(settings) as producer:
        for number in range(records):
            producer.send("t", b"x" * 100, partition=number % 2)
        producer.flush()
        link.send(os.getpid())
        link.recv()


def test_the_values_of_a_slab(settings: Settings, slab_name: str) -> None:
    with Producer(settings | {"compression.type": "gzip"}) as producer:
        for number in range(7):
            producer.send("t", b"x" * 1000, partition=number % 2)
        producer.flush()
        scrapes = {
            (partitions, accept): scrape(SlabCollector([slab_name], partitions=partitions), accept)
            for partitions in (False, True)
            for accept in ("", OPENMETRICS)
        }
    for (partitions, _), seen in scrapes.items():
        assert total(seen, "shmaccum_records_sent_total", slab=slab_name, topic="t") == 7
        assert total(seen, "shmaccum_records_sent_total", partition="1") == (3 if partitions else 0)
        assert total(seen, "shmaccum_records_appended_total", slab=slab_name) == 7
        assert total(seen, "shmaccum_records_failed_total") == total(seen, "shmaccum_records_lost_total") == 0
        assert total(seen, "shmaccum_sender_up", slab=slab_name) == 1
        assert total(seen, "shmaccum_processes", role="producer", state="alive") == 1
        assert total(seen, "shmaccum_processes", role="sender", state="alive") == 1
        assert total(seen, "shmaccum_buffer_total_bytes") == 1 << 20
        assert total(seen, "shmaccum_queue_time_seconds_count") == total(seen, "shmaccum_batches_sent_total")
        assert total(seen, "shmaccum_compression_ratio_count") == total(seen, "shmaccum_batches_compressed_total")
        assert total(seen, "shmaccum_record_size_bytes_count") == 7
        assert 7000 < total(seen, "shmaccum_record_size_bytes_sum") < 7300
        assert total(seen, "shmaccum_table_entries", table="partitions") == 2
        assert total(seen, "shmaccum_slabs") == 1


def test_queued_records_and_the_age_of_the_oldest(settings: Settings, slab_name: str) -> None:
    collector = SlabCollector([slab_name], partitions=True)
    with Producer(settings | LINGERS) as producer:
        producer.send("t", b"x" * 1000, partition=1)
        wait_until(lambda: total(scrape(collector), "shmaccum_oldest_record_age_seconds", partition="1") > 0.05)
        seen = scrape(collector)
        assert total(seen, "shmaccum_queued_records", partition="0") == 0
        assert total(seen, "shmaccum_queued_records", partition="1") == 1
        assert 1000 < total(seen, "shmaccum_queued_bytes", partition="1") < 1100
        assert total(seen, "shmaccum_oldest_record_age_seconds", partition="0") == 0
        assert total(seen, "shmaccum_buffer_available_bytes") < 1 << 20
        assert total(seen, "shmaccum_partitions_without_leader") == 0


def test_no_counter_falls_when_processes_die_and_senders_change(
    settings: Settings, slab_name: str, start: Start
) -> None:
    collector = SlabCollector([slab_name])
    before: Values = {}
    first = start(work, settings, 2)  # keeps the slab
    first.hear()
    for records in (4, 3):
        child = start(work, settings, records)
        child.hear()
        child.kill()
        sender = report(slab_name).sender.pid
        assert sender is not None
        os.kill(sender, signal.SIGKILL)
        wait_until(lambda: total(scrape(collector), "shmaccum_sender_up") == 0)
        with Producer(settings) as producer:
            producer.send("t", b"x", partition=0).get(timeout=30)
            seen = scrape(collector)
        fallen = {key for key, value in counters(before).items() if seen[key] < value}
        assert fallen == set()
        before = seen
    first.tell()
    first.result()

    for counter in ("records_appended_total", "records_sent_total", "record_size_bytes_count"):
        assert total(before, f"shmaccum_{counter}") == 2 + 4 + 3 + 2
    assert total(before, "shmaccum_sender_starts_total") == 3


# --- slabs made by hand -------------------------------------------------------------------------------


@pytest.fixture
def slab(slab_name: str) -> Iterator[Slab]:
    slab = attach(slab_name, GEOMETRY)
    yield slab
    detach(slab)


def test_a_new_slab_has_counted_nothing(slab: Slab) -> None:
    """And no mean divides by zero."""
    metrics = report(slab.name).metrics
    assert metrics.pop("buffer-total-bytes") == metrics.pop("buffer-available-bytes") == 8 * 64
    assert set(metrics.values()) == {0}


def test_an_error_is_counted_by_its_class_alone(slab: Slab) -> None:
    incidents, collector = Incidents(slab), SlabCollector([slab.name])
    incidents.begin()
    incidents.note(NetworkError, "one cause", lasts=True)
    incidents.note(NetworkError, "one cause", lasts=True)
    incidents.note(NetworkError, "another")
    incidents.note(LeaderNotAvailableError, "none")
    seen = scrape(collector)
    assert total(seen, "shmaccum_errors_total", error="NetworkError") == 3
    assert total(seen, "shmaccum_errors_total", error="LeaderNotAvailableError") == 1
    assert total(seen, "shmaccum_lasting_errors", error="NetworkError") == 1
    assert all(set(dict(labels)) == {"slab", "error"} for name, labels in seen if name == "shmaccum_errors_total")


def test_errors_that_the_slab_drops_stay_counted(slab: Slab) -> None:
    incidents, collector = Incidents(slab), SlabCollector([slab.name])
    incidents.begin()
    for number in range(1, 3 * INCIDENTS + 1):
        incidents.note(NetworkError, f"cause {number}")
        incidents.note(NetworkError, f"cause {number}")
        if number % INCIDENTS < 2:  # before and after one of them is dropped, and a round of them
            assert total(scrape(collector), "shmaccum_errors_total", error="NetworkError") == 2 * number


def test_a_broker_has_one_series_and_bootstrap_servers_fail_only_before_it_is_known(slab: Slab) -> None:
    journal, collector = BrokerJournal(slab), SlabCollector([slab.name])
    address = journal.broker(Node(-1, "a", 9092))
    address.connecting()
    address.failed(0)
    seen = scrape(collector)
    assert total(seen, "shmaccum_broker_failed", broker="bootstrap") == 1
    for host in ("a", "b"):  # the same broker at another address
        broker = journal.broker(Node(1, host, 9092))
        broker.connecting()
        broker.ready()
        broker.answered(100, 1.5, 1.0)
        broker.throttled(250, 0)
        broker.in_flight(1, 1.0)
    seen = scrape(collector)
    for name in ("connected", "failed"):  # without a sender, no connection lasts
        assert total(seen, f"shmaccum_broker_{name}", broker="1") == 0
    assert total(seen, "shmaccum_requests_in_flight", broker="1") == 0
    assert total(seen, "shmaccum_oldest_request_age_seconds", broker="1") == 0
    doorbell = slab.become_sender()
    seen = scrape(collector)
    doorbell.close()
    assert total(seen, "shmaccum_requests_in_flight", broker="1") == 2
    assert total(seen, "shmaccum_oldest_request_age_seconds", broker="1") > 0
    assert total(seen, "shmaccum_broker_failed") == 0
    assert total(seen, "shmaccum_broker_connected", broker="1") == 1
    assert total(seen, "shmaccum_broker_connections_total", broker="1") == 2
    assert total(seen, "shmaccum_broker_connection_failures_total", broker="bootstrap") == 1
    assert total(seen, "shmaccum_broker_throttle_seconds_total", broker="1") == 0.5
    assert total(seen, "shmaccum_request_latency_seconds_count", broker="1") == 2
    assert total(seen, "shmaccum_request_latency_seconds_bucket", broker="1", le="0.001024") == 0
    assert total(seen, "shmaccum_request_latency_seconds_bucket", broker="1", le="0.002048") == 2


def test_a_deleted_partition_needs_no_leader(slab: Slab) -> None:
    words, geometry = slab.words, slab.geometry
    words[geometry.topic(0) + Topic.NAME] = ord("t")
    words[geometry.topic(0) + Topic.NAME_LENGTH] = 1
    words[geometry.topic(0) + Topic.PARTITIONS] = 2
    words[geometry.topic(0) + Topic.STATE] = TopicState.KNOWN
    words[Super.TOPIC_COUNT] = 1
    for entry in range(3):
        words[geometry.partition(entry) + Partition.KEY] = 1 << 32 | entry
    words[geometry.partition(1) + Partition.LEADER] = 1 + 1
    words[Super.PARTITION_COUNT] = 3
    seen = scrape(SlabCollector([slab.name]))
    assert total(seen, "shmaccum_partitions_without_leader", topic="t") == 1


def test_slabs_that_cannot_be_read_are_counted_and_break_nothing(slab: Slab) -> None:
    foreign, damaged = f"{slab.name}-foreign", f"{slab.name}-damaged"
    Path(names.segment_path(foreign)).write_bytes(b"x" * 10_000)
    Path(names.segment_path(foreign)).chmod(0o600)
    Path(names.lock_path(foreign)).touch(mode=0o600)
    other = attach(damaged, GEOMETRY)
    other.words[Super.TOPIC_COUNT] = 1 << 60
    collector = SlabCollector([foreign, damaged, slab.name, f"{slab.name}-gone"])
    try:
        seen = scrape(collector)
        assert total(seen, "shmaccum_slabs") == 1
        assert total(seen, "shmaccum_unreadable_slabs") == 2
        assert total(seen, "shmaccum_unreadable_slabs", error="SlabDamagedError") == 1
        assert total(seen, "shmaccum_buffer_total_bytes", slab=slab.name) == 512
    finally:
        overwrite(damaged, Super.TOPIC_COUNT, 0)
        detach(other)
        unlink(foreign)
    assert total(scrape(collector), "shmaccum_unreadable_slabs") == 0


def test_no_damaged_word_breaks_a_scrape(slab: Slab) -> None:
    @given(word=st.integers(0, 63) | st.integers(0, GEOMETRY.slots // WORD - 1), value=st.integers(0, (1 << 64) - 1))
    def check(word: int, value: int) -> None:
        kept = slab.words[word]
        try:
            slab.words[word] = value
            seen = scrape(SlabCollector([slab.name]))
            assert total(seen, "shmaccum_slabs") + total(seen, "shmaccum_unreadable_slabs") == 1
        finally:
            slab.words[word] = kept

    check()


def test_a_registry_of_ones_own_takes_it_without_reading_a_slab() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(SlabCollector())
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(SlabCollector())


# --- the catalogue ------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1 << 28), max_size=50))
def test_a_buckets_count_is_exact(values: list[int]) -> None:
    counts = [0] * HISTOGRAM_BUCKETS
    for value in values:
        counts[bucket_of(value)] += 1
    distribution = Distribution(tuple(counts), sum(values), max(values, default=0))
    for metric in catalogue.OF_SLABS:
        if metric.buckets is not None:
            found = histogram(metric.buckets, distribution)
            *counts, whole_count = found.counts.values()
            # The unit of times is rounded down: 63.9 microseconds are 63, and not more than 64.
            whole = metric.buckets.unit == 1.0
            limits = [round(bound / metric.buckets.unit) + whole for bound in metric.buckets.bounds]
            assert counts == [sum(value < limit for value in values) for limit in limits]
            assert whole_count == len(values)
            assert found.total == pytest.approx(sum(values) * metric.buckets.unit)


def test_names_follow_prometheus(slab: Slab) -> None:
    every = (*catalogue.OF_SLABS, *catalogue.OF_EXPORTER)
    assert len({metric.name for metric in every}) == len(every)
    for metric in every:
        assert metric.name.startswith("shmaccum_")
        assert not metric.name.endswith(("_total", "_ms", "_count", "_sum", "_bucket"))
        assert metric.help.endswith(".")
        assert (metric.buckets is not None) == (metric.kind is Kind.HISTOGRAM)
    assert set(series_of(report(slab.name))) | {catalogue.ERRORS} == set(catalogue.OF_SLABS)


def test_queries_of_documents_name_metrics_and_their_labels() -> None:
    """A query that names none, or filters by a label that the metric lacks, would return nothing."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    named = re.findall(r"(shmaccum_\w+)(?:\{(\w+)=)?", text)
    labels = {metric.name: metric.labels for metric in catalogue.OF_SLABS}
    for name, label in named:
        stem = re.sub("_(total|bucket)$", "", name)
        assert stem in labels, name
        assert label in ("", "slab", *labels[stem]), name
    assert len(named) > 5
