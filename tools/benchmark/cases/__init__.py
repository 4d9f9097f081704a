"""The cases, by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.cases.columns import Columns
from tools.benchmark.cases.exactly_once import ExactlyOnce
from tools.benchmark.cases.in_loop import InLoop
from tools.benchmark.cases.jvm import Jvm
from tools.benchmark.cases.latency import Latency
from tools.benchmark.cases.limits import Limits
from tools.benchmark.cases.producers import Producers
from tools.benchmark.cases.records import Records
from tools.benchmark.cases.sender import SenderAlone
from tools.benchmark.cases.sizes import Sizes
from tools.benchmark.cases.spark import Spark

CASES: Final[Mapping[str, type[Case]]] = {
    case.name: case
    for case in (Records, Columns, Producers, Spark, Sizes, Latency, Limits, SenderAlone, ExactlyOnce, InLoop, Jvm)
}

__all__ = ["CASES", "Case", "Variant"]
