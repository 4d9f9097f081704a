"""The plots of docs/performance/tables.md, without variants that were not measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def _producers(result: Result) -> str:
    found = []
    for place, partitions in enumerate(PARTITIONS):
        variants = {str(number): producers_variant(number, partitions) for number in NUMBERS}
        for contestant in (OURS, CONFLUENT):
            points = _points(result, "producers", variants, contestant, "records_per_s")
            label = f"{contestant}, {plural(partitions, 'partition')}"
            found.append(Line(label, points, COLOURS[place], dashed=contestant != OURS))
    return _drawn("Throughput of many producers, into the sink", "records a second", "processes", found)


def _sizes(result: Result) -> str:
    variants = {text: f"size-{size}" for text, size in OF_SIZES.items()}
    found = [
        Line(contestant, _points(result, "sizes", variants, contestant, "mb_per_core_s"), colour, dashed)
        for contestant, colour, dashed in (
            (OURS, COLOURS[0], False),
            (OUR_COLUMNS, COLOURS[2], False),
            (CONFLUENT, COLOURS[1], True),
        )
    ]
    return _drawn("Records of all sizes", "MB a second per core", "size of a record", found)


def _points(result: Result, case: str, variants: Mapping[str, str], contestant: str, figure: str) -> dict[str, float]:
    found = {place: median(result, case, variant, contestant, figure) for place, variant in variants.items()}
    return {place: value for place, value in found.items() if value is not None}


def _drawn(title: str, unit: str, axis: str, found: Sequence[Line]) -> str:
    drawn = [line for line in found if line.points]
    return lines(title, unit, axis, drawn) if drawn else ""


PLOTS: Final[Mapping[str, Callable[[Result], str]]] = {
    "records": _bars("records", "records_per_core_s", "Record by record", "records a second per core"),
    "columns": _bars("columns", "records_per_core_s", "Columns", "records a second per core"),
    "producers": _producers,
    "spark": _bars("spark", "wall_s", "PySpark jobs", "seconds, less is better"),
    "spark-cpu": _bars("spark", "cpu_s", "PySpark jobs", "seconds of processor time, less is better"),
    "sizes": _sizes,
    "latency": _bars("latency", "p99_ms", "Append to acknowledgement, p99", "milliseconds, less is better"),
}
"""File name between ``performance-`` and ``.svg`` -> function that draws it, empty if there is nothing to draw."""
