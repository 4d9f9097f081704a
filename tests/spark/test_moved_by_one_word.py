"""The tool that runs jobs in both formats: some of its jobs beside Spark's own sink, and what it compares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fixture_types import Capture
from pyspark.sql import SparkSession

from tools.benchmark.errors import MissingError
from tools.benchmark.spark import jars
from tools.kafka import KafkaCluster
from tools.moved_by_one_word.__main__ import main
from tools.moved_by_one_word.job import Job, Order
from tools.moved_by_one_word.jobs import JOBS
from tools.moved_by_one_word.outcome import Outcome, Refusal, differences, outcome_of
from tools.moved_by_one_word.reading import Record
from tools.moved_by_one_word.report import Comparison, Versions, as_json, as_markdown
from tools.moved_by_one_word.run import compare

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> SparkSession:
    """Return the session with Spark's own sink besides, or skip the test and say why."""
    try:
        _, found = jars.spark_sink_jars()
    except MissingError as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI is to have Spark's own Kafka sink: {missing}")
        pytest.skip(str(missing))
    for jar in found:
        spark.sql(f"ADD JAR '{jar}'")
    return spark


def test_jobs_beside_spark_s_own_sink(both: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> None:
    jobs = [JOBS[name] for name in ("headers_and_partitions", "no_value_column", "default_mode")]
    comparisons = [compare(both, kafka, job, tmp_path) for job in jobs]
    assert [each.verdict for each in comparisons] == ["yes", "yes: both refuse", "no"]
    for outcome in (comparisons[0].kafka, comparisons[0].ours, comparisons[2].kafka):
        assert outcome.records
        assert (outcome.duplicates, outcome.lost) == (0, 0)
    assert comparisons[2].ours.refusal is not None
    assert comparisons[2].ours.refusal.text.startswith("[UNSUPPORTED_DATA_SOURCE_SAVE_MODE]")


def one_job(order: Order = Order.NONE, *, placed: bool = False, differs: bool = False) -> Job:
    """Return a job that is to write 0, 1 and 2."""

    def a_job(*_: object) -> None:
        """A job."""

    return Job(a_job, (b"0", b"1", b"2"), 1, True, placed, order, differs, "named")


def written(job: Job, *partitions: str, keys: str = "", error: Exception | None = None) -> Outcome:
    """Return the outcome with these values in the partitions; a value's key is at its place in ``keys``."""
    of = {str(number).encode(): key.encode() for number, key in enumerate(keys)}
    found = {
        number: [Record(of.get(value.encode()), value.encode(), ()) for value in values]
        for number, values in enumerate(partitions)
    }
    return outcome_of(job, [found], error)


def test_duplicates_and_losses_are_counted() -> None:
    job = one_job()
    kafka, ours = written(job, "012"), written(job, "00", "02")
    assert (kafka.duplicates, kafka.lost, ours.duplicates, ours.lost) == (0, 0, 2, 1)
    assert differences(job, kafka, ours) == ["duplicates: 0 / 2", "lost: 0 / 1", "other records in topic 1"]


@pytest.mark.parametrize(
    ("order", "placed", "keys", "partitions", "same"),
    [
        (Order.NONE, False, "", ("2", "01"), True),
        (Order.NONE, True, "", ("2", "01"), False),
        (Order.NONE, True, "", ("10", "2"), True),
        (Order.KEY, True, "aab", ("10", "2"), False),
        (Order.KEY, True, "abb", ("10", "2"), True),
        (Order.PARTITION, True, "abb", ("10", "2"), False),
        (Order.PARTITION, True, "abb", ("01", "2"), True),
    ],
)
def test_places_and_order_count_where_they_are_defined(
    order: Order, placed: bool, keys: str, partitions: tuple[str, ...], same: bool
) -> None:
    job = one_job(order, placed=placed)
    kafka, ours = written(job, "01", "2", keys=keys), written(job, *partitions, keys=keys)
    assert differences(job, kafka, ours) == ([] if same else ["other records in topic 1"])


class Py4JJavaError(Exception):
    """What pyspark raises for an error of Java's."""


class PythonException(Exception):
    """What pyspark raises for an error of a Python worker's."""


def test_errors_are_named_by_the_sink_that_raised_them() -> None:
    theirs = Py4JJavaError(
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted\n\tat ...\n"
        "Caused by: org.apache.kafka.common.errors.RecordTooLargeException: The message is large\n"
    )
    mine = PythonException(
        "\nTraceback (most recent call last):\nshmaccum.errors.RecordTooLargeError: Row 9 is large\n"
    )
    assert Refusal.of(theirs) == ("Py4JJavaError", "RecordTooLargeException", "The message is large")
    assert Refusal.of(mine) == ("PythonException", "RecordTooLargeError", "Row 9 is large")
    assert Refusal.of(Py4JJavaError("An error ...\n: org.apache.spark.Gone: [GONE] is not\n\tat ")).kind == "Gone"
    query = PythonException("[STREAM_FAILED] Query [id = 1] terminated with exception: it cannot\nPlan: ...")
    assert Refusal.of(query).text == "it cannot"
    job = one_job()
    assert differences(job, written(job, error=theirs), written(job, error=mine)) == []
    assert differences(job, written(job, error=theirs), written(job, error=query)) == [
        "RecordTooLargeException / PythonException"
    ]
    assert differences(job, written(job, "012"), written(job, error=mine)) == ["only shmaccum refuses"]


def test_a_difference_that_is_not_known_stands_out() -> None:
    known, unknown = one_job(differs=True), one_job()
    comparisons = [
        Comparison(job, written(job, "012"), written(job, *ours))
        for job, ours in ((known, ("01",)), (unknown, ("01",)), (known, ("012",)), (unknown, ("012",)))
    ]
    assert [each.is_as_known for each in comparisons] == [True, False, False, True]
    assert [each.verdict for each in comparisons] == ["no", "**no**", "yes, **which is new**", "yes"]
    table = as_markdown(Versions("4", "4", "4"), comparisons)
    assert "| A job | 3 / 0 / 0 | 2 / 0 / 1 | no | named |" in table
    assert "* shmaccum: 4 of 4 jobs done, 10 records, 0 too many, 2 missing" in table
    assert [each["same"] for each in as_json(Versions("4", "4", "4"), comparisons)["jobs"]] == [
        False,
        False,
        True,
        True,
    ]


def test_the_command_line(capsys: Capture, tmp_path: Path) -> None:
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 25 == len(JOBS)
    with pytest.raises(SystemExit, match="2"):
        main(["--job", "nonsense"])
    assert "there is no job 'nonsense'; there are: keys_and_values, " in capsys.readouterr().err
    assert main(["--json", str(tmp_path / "nowhere" / "file")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_the_document_has_every_job_that_differs_and_why() -> None:
    text = DOCUMENT.read_text().split("\n## Moved by one word\n")[1].split("\n## ")[0]
    different = [job for job in JOBS.values() if job.differs]
    assert f"{len(JOBS) - len(different)} of {len(JOBS)} come to the same" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[2:] == [f"| {job.title} | {job.note} |" for job in different]


def test_a_sink_of_another_version_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where one lies ready: the versions are to be the same, if they can be had."""
    asked, there = [], {"4.2.0"}

    def fetch(version: str) -> str:
        asked.append(version)
        return "" if version in there else "404"

    monkeypatch.setattr(jars, "HOME", tmp_path)
    monkeypatch.setattr(jars, "version", lambda _: "4.2.0")
    monkeypatch.setattr(jars, "_fetch", fetch)
    (tmp_path / f"spark-sql-kafka-0-10-{jars.FALLBACK}").mkdir()
    assert jars.spark_sink_jars()[0] == "4.2.0"
    there.clear()
    for _ in range(2):  # for some time, a repository that had none is not asked again
        assert jars.spark_sink_jars()[0] == jars.FALLBACK
    assert asked == ["4.2.0", "4.2.0"]
    (tmp_path / f"spark-sql-kafka-0-10-{jars.FALLBACK}").rmdir()
    os.utime(tmp_path / "spark-sql-kafka-0-10-4.2.0.missing", (0, 0))
    with pytest.raises(MissingError, match=r"4\.2\.0: 404; 4\.0\.0: 404"):
        jars.spark_sink_jars()
