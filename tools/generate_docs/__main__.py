"""Generates documents from the code, so that they match it.

``python -m tools.generate_docs`` writes them; with ``--check`` it writes nothing, shows how the files
differ from what it would write, and exits 1 if they do. A new document is one more entry in `DOCUMENTS`;
its text is in pages/.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from shmaccum.config import ProducerConfig
from shmaccum.config.configdef import Group, Importance, Scope, Setting
from tools.generate_docs.layout import slab_layout
from tools.generate_docs.monitoring import metrics, runbook
from tools.generate_docs.status import status
from tools.generate_docs.stub import stub
from tools.generate_docs.text import page, table
from tools.step.report import as_table
from tools.support.generating import write_or_check

ROOT: Final = Path(__file__).resolve().parents[2]

Units = Sequence[tuple[int, str]]
TIME_UNITS: Final[Units] = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
MEMORY_UNITS: Final[Units] = ((1 << 30, "gibibyte"), (1 << 20, "mebibyte"), (1 << 10, "kibibyte"))

SCOPES: Final = {
    Scope.SLAB: """where bytes go, or what is promised: all users of a slab have the same value. Another value makes
        another slab; with a `shmaccum.name`, the producer is refused by an error that names the setting""",
    Scope.SHARED: """how the one sender works for all: the value of the newest producer (or `shmaccum sender`) holds,
        and can change while the slab lives""",
    Scope.PRODUCER: "one producer: the value holds for its records, as in Kafka",
    Scope.SENDER: "one sender process: the value of the process that starts it holds until the next sender",
}
"""What a setting of each scope concerns, and whose value holds."""


def configuration() -> str:
    """Return docs/configuration.md: a table for each group, the most important settings first, as Kafka's docs."""
    groups, levels = list(Group), list(Importance)
    settings = sorted(
        ProducerConfig.settings.values(),
        key=lambda each: (groups.index(Group(each.group)), levels.index(each.importance), each.name),
    )
    scopes = []
    for scope, concerns in SCOPES.items():
        names = sorted(setting.name for setting in settings if setting.scope is scope)
        scopes.append((f"**{scope}**", " ".join(concerns.split()), ", ".join(f"`{name}`" for name in names)))
    parts = [page("configuration", table=table(("Scope", "Concerns", "Settings"), scopes))]
    head = ("Name", "Description", "Type", "Default", "Valid values", "Importance", "Scope")
    for group, of_group in groupby(settings, key=lambda setting: setting.group):
        parts.append(f"## {group}\n\n{table(head, map(_row, of_group))}\n")
    return "\n".join(parts)


def _row(setting: Setting[Any]) -> Sequence[object]:
    default = setting.default_text()
    return (
        f"`{setting.name}`",
        setting.doc,
        setting.type.name,
        f"`{default}`{_in_units(setting.name, default)}" if default != '""' else "empty",
        setting.valid.allowed if setting.valid is not None else "",
        setting.importance,
        setting.scope,
    )


def _in_units(name: str, default: str) -> str:
    """Return a default in the largest unit that divides it, in parentheses (``ConfigDef.niceTimeUnits``)."""
    is_memory = name.endswith((".memory", ".size", ".bytes"))
    units = TIME_UNITS if name.endswith(".ms") else MEMORY_UNITS if is_memory else ()
    value = int(default) if default.isdecimal() else 0
    for size, unit in units:
        if value > 0 and value % size == 0:
            count = value // size
            return f" ({count} {unit}{'s' if count > 1 else ''})"
    return ""


DOCUMENTS: Final[Mapping[str, Callable[[], str]]] = {
    "docs/configuration.md": configuration,
    "docs/crash-points.md": lambda: page("crash-points", table=as_table()),
    "docs/monitoring/alerts.md": runbook,
    "docs/monitoring/metrics.md": metrics,
    "docs/slab-layout.md": slab_layout,
    "docs/status.md": status,
    "shmaccum/_core.pyi": stub,
}
"""Path from the project's root -> what makes the text."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    files = {root / path: make_text for path, make_text in DOCUMENTS.items()}
    return write_or_check("generate_docs", "Write the documents that are generated from the code.", files, arguments)


if __name__ == "__main__":
    sys.exit(main())
