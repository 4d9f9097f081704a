"""The plots of docs/performance/tables.md, without variants that were not measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.benchmark.cases.base import plural
from tools.benchmark.cases.one_process import OF_SIZES
from tools.benchmark.cases.producers import NUMBERS, PARTITIONS
from tools.benchmark.cases.producers import variant_name as producers_variant
from tools.benchmark.contestants import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, OUR_COLUMNS, OURS
from tools.benchmark.results import Result, median, variants_of
from tools.benchmark.spark.jobs import KEPT_CONFLUENT, SPARK_SINK
from tools.benchmark.statistics import Spread
from tools.benchmark.svg import COLOURS, Bar, Line, bars, lines

COLOUR_OF: Final = dict(
    zip((OURS, CONFLUENT, KAFKA_PYTHON, AIOKAFKA, SPARK_SINK, KEPT_CONFLUENT), COLOURS, strict=True)
) | {OUR_COLUMNS: COLOURS[0]}


def write_plots(result: Result, directory: Path) -> list[Path]:
    written = []
    for name, make in PLOTS.items():
        drawing = make(result)
        if drawing:
            written.append(directory / f"performance-{name}.svg")
            written[-1].write_text(drawing)
    return written


def _bars(case: str, figure: str, title: str, unit: str) -> Callable[[Result], str]:
    """Return a function that draws a figure of all variants of a case."""

    def draw(result: Result) -> str:
        groups = {
            variant["title"]: [
                Bar(name, Spread(*contestant["summary"][figure]), COLOUR_OF.get(name, COLOURS[-1]))
                for name, contestant in variant["contestants"].items()
                if figure in contestant["summary"]
            ]
            for variant in variants_of(result, case)
            if figure in variant["figures"]
        }
        return bars(title, unit, groups) if groups else ""

    return draw


def _lines(
    case: str, figure: str, title: str, unit: str, axis: str, series: Mapping[str, tuple[str, str, Mapping[str, str]]]
) -> Callable[[Result], str]:
    """Return a function that draws lines: by their labels, contestant, colour, and the variants by their places."""

    def draw(result: Result) -> str:
        found = []
        for label, (contestant, colour, variants) in series.items():
            medians = {place: median(result, case, name, contestant, figure) for place, name in variants.items()}
            if points := {place: value for place, value in medians.items() if value is not None}:
                found.append(Line(label, points, colour, dashed=contestant == CONFLUENT))
        return lines(title, unit, axis, found) if found else ""

    return draw


_OF_PRODUCERS: Final = {
    f"{contestant}, {plural(partitions, 'partition')}": (
        contestant,
        COLOURS[place],
        {str(number): producers_variant(number, partitions) for number in NUMBERS},
    )
    for place, partitions in enumerate(PARTITIONS)
    for contestant in (OURS, CONFLUENT)
}
_BY_SIZE: Final = {text: f"size-{size}" for text, size in OF_SIZES.items()}
_OF_SIZES: Final = {
    contestant: (contestant, COLOURS[place], _BY_SIZE)
    for contestant, place in {OURS: 0, OUR_COLUMNS: 2, CONFLUENT: 1}.items()
}

PLOTS: Final[Mapping[str, Callable[[Result], str]]] = {
    "records": _bars("records", "records_per_core_s", "Record by record", "records a second per core"),
    "columns": _bars("columns", "records_per_core_s", "Columns", "records a second per core"),
    "producers": _lines(
        "producers",
        "records_per_s",
        "Throughput of many producers, into the sink",
        "records a second",
        "processes",
        _OF_PRODUCERS,
    ),
    "spark": _bars("spark", "wall_s", "PySpark jobs", "seconds, less is better"),
    "spark-cpu": _bars("spark", "cpu_s", "PySpark jobs", "seconds of processor time, less is better"),
    "sizes": _lines(
        "sizes", "mb_per_core_s", "Records of all sizes", "MB a second per core", "size of a record", _OF_SIZES
    ),
    "latency": _bars("latency", "p99_ms", "Append to acknowledgement, p99", "milliseconds, less is better"),
}
"""File name between ``performance-`` and ``.svg`` -> function that draws it, empty if there is nothing to draw."""
