"""Generates documents from the code, so that they match it.

``python -m tools.generate_docs`` writes them; with ``--check`` it writes nothing, shows how the files
differ from what it would write, and exits 1 if they do. A new document is one more entry in `DOCUMENTS`;
its text is in pages/.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from shmaccum.config import ProducerConfig
from shmaccum.config.configdef import Group, Importance, Scope, Setting
from tools.generate_docs.layout import slab_layout
from tools.generate_docs.monitoring import metrics, runbook
from tools.generate_docs.status import status
from tools.generate_docs.stub import stub
from tools.generate_docs.text import page
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
    lines = [page("configuration", table="\n".join(_scopes()))]
    for group, settings in groupby(_settings(), key=lambda setting: setting.group):
        lines += [
            f"## {group}",
            "",
            "| Name | Description | Type | Default | Valid values | Importance | Scope |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *map(_table_row, settings),
            "",
        ]
    return "\n".join(lines)


def _settings() -> list[Setting[Any]]:
    """Return all settings in the order of the documentation: by group, then importance, then name."""
    groups, levels = list(Group), list(Importance)
    return sorted(
        ProducerConfig.settings.values(),
        key=lambda each: (groups.index(Group(each.group)), levels.index(each.importance), each.name),
    )


def _scopes() -> Iterator[str]:
    """Yield a table of the scopes, each with its settings."""
    yield "| Scope | Concerns | Settings |"
    yield "| --- | --- | --- |"
    for scope, concerns in SCOPES.items():
        names = sorted(setting.name for setting in _settings() if setting.scope is scope)
        yield f"| **{scope}** | {' '.join(concerns.split())} | {', '.join(f'`{name}`' for name in names)} |"


def _table_row(setting: Setting[Any]) -> str:
    default = setting.default_text()
    cells = (
        f"`{setting.name}`",
        setting.doc,
        setting.type.name,
        f"`{default}`{_in_units(setting.name, default)}" if default != '""' else "empty",
        setting.valid.allowed if setting.valid is not None else "",
        setting.importance,
        setting.scope,
    )
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _in_units(name: str, default: str) -> str:
    """Return a default in the largest unit that divides it, in parentheses (``ConfigDef.niceTimeUnits``)."""
    if name.endswith(".ms"):
        units = TIME_UNITS
    elif name.endswith((".memory", ".size", ".bytes")):
        units = MEMORY_UNITS
    else:
        return ""
    if not default.lstrip("-").isdecimal():
        return ""
    value = int(default)
    for size, unit in units:
        if value > 0 and value % size == 0:
            count = value // size
            return f" ({count} {unit}{'s' if count > 1 else ''})"
    return ""


def crash_points() -> str:
    return page("crash-points", table=as_table())


DOCUMENTS: Final[Mapping[str, Callable[[], str]]] = {
    "docs/configuration.md": configuration,
    "docs/crash-points.md": crash_points,
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
