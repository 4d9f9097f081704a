"""The page of what ``shmaccum status --json`` prints, from the docstrings of the report's classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

from shmaccum.observe.bottleneck import Bottleneck
from shmaccum.observe.report import Memory, Recovery, SlabReport, Tables, UnreadableSlab
from shmaccum.observe.verdict import Finding
from shmaccum.shm.broker_table import BrokerInfo
from shmaccum.shm.incidents import IncidentInfo
from shmaccum.shm.inspection import LaneInfo, PartitionInfo, SenderInfo, TopicInfo
from shmaccum.shm.processes import ProcessInfo
from tools.generate_docs.text import page, table

PARTS: Final = {
    "A slab": SlabReport,
    "A slab that cannot be read": UnreadableSlab,
    "`memory`": Memory,
    "`tables`": Tables,
    "`sender`": SenderInfo,
    "One of `incidents`": IncidentInfo,
    "One of `processes`": ProcessInfo,
    "One of `topics`": TopicInfo,
    "One of `partitions`": PartitionInfo,
    "One of `lanes`": LaneInfo,
    "One of `brokers`": BrokerInfo,
    "`recovery`": Recovery,
    "`bottleneck`": Bottleneck,
    "One of `findings`": Finding,
}
_ATTRIBUTE: Final = re.compile(r"^    ((?:\w+, )*\w+): (.*?)(?=^    \S|\Z)", re.MULTILINE | re.DOTALL)


def status() -> str:
    parts = []
    for title, of in PARTS.items():
        rows = [(", ".join(f"`{name}`" for name in names), text) for names, text in attributes(of)]
        parts.append(f"## {title}\n\n{table(('field', 'meaning'), rows)}")
    return page("status", parts="\n\n".join(parts))


def attributes(of: type) -> Iterator[tuple[list[str], str]]:
    """Yield the attributes that a class documents, those of one text together.

    Raises:
        ValueError: it does not document just those that it has.
    """
    found = _ATTRIBUTE.findall((inspect.getdoc(of) or "").partition("Attributes:\n")[2])
    names = [name for few, _ in found for name in few.split(", ")]
    if sorted(names) != sorted(of.__annotations__):
        raise ValueError(f"{of.__name__} has {sorted(of.__annotations__)}, and documents {sorted(names)}")
    for few, text in found:
        text = " ".join(text.split()).removesuffix(".").replace("``", "`")
        yield few.split(", "), re.sub(r"\bNone\b", "null", text)
