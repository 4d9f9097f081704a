"""The cases, by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tools.benchmark.cases.base import Case
from tools.benchmark.cases.defaults import CALLS, DISTANCE, START
from tools.benchmark.cases.exactly_once import EXACTLY_ONCE
from tools.benchmark.cases.jvm import JVM
from tools.benchmark.cases.latency import LATENCY
from tools.benchmark.cases.limits import LIMITS
from tools.benchmark.cases.one_process import ASYNCIO, COLUMNS, RECORDS, SIZES
from tools.benchmark.cases.producers import PRODUCERS
from tools.benchmark.cases.sender import SENDER
from tools.benchmark.cases.spark import SPARK

CASES: Final[Mapping[str, Case]] = {
    case.name: case
    for case in (
        *(RECORDS, COLUMNS, PRODUCERS, SPARK, SIZES, LATENCY, LIMITS, SENDER, EXACTLY_ONCE, ASYNCIO, JVM),
        *(CALLS, DISTANCE, START),
    )
}
