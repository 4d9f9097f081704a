"""docs/performance.md, its tables and its plots are what docs/performance.json makes."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from benchmark_results import result, rounds, variant

from tools.benchmark.cases.producers import NUMBERS, PARTITIONS, variant_name
from tools.benchmark.contestants import CONFLUENT, OURS
from tools.benchmark.document import PARTS, renew
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.plots import PLOTS, write_plots

DOCS = Path(__file__).resolve().parents[3] / "docs"
DOCUMENTS = [DOCS / "performance.md", DOCS / "performance" / "tables.md"]


def test_the_documents_are_up_to_date(tmp_path: Path) -> None:
    measured = json.loads((DOCS / "performance.json").read_text())
    texts = [document.read_text() for document in DOCUMENTS]
    assert [renew(text, measured) for text in texts] == texts
    parts = [part for text in texts for part in re.findall(r"<!-- begin ([\w-]+) -->", text)]
    assert sorted(parts) == sorted(PARTS), "each part is in one of them"
    for plot in write_plots(measured, tmp_path):
        assert plot.read_text() == (DOCS / plot.name).read_text()
        assert f"(../{plot.name})" in texts[1]


def test_only_what_is_generated_is_renewed() -> None:
    text = "by hand\n<!-- begin targets -->\nold\n<!-- end targets -->\nby hand, too\n"
    renewed = renew(text, result())
    assert renewed.startswith("by hand\n<!-- begin targets -->\n\n| target |")
    assert renewed.endswith("|\n\n<!-- end targets -->\nby hand, too\n")
    assert "old" not in renewed
    assert renew(renewed, result()) == renewed


def test_a_part_that_there_is_not() -> None:
    with pytest.raises(BenchmarkError, match=r"no part 'other' .* targets"):
        renew("<!-- begin other -->\n<!-- end other -->", result())


def test_every_part_can_do_without_figures() -> None:
    for make in PARTS.values():
        assert make(result())


def test_void_variants_are_not_passed_over() -> None:
    measured = result(("latency", [variant("x", {OURS: rounds(p99_ms=[1.0])}, void="2 records are lost")]))
    assert "void: 2 records are lost" in PARTS["latency"](measured)


def test_figures_that_are_not_to_be_taken_too_seriously() -> None:
    good = result()
    assert "preliminary" not in PARTS["machine"](good)
    busy = good | {"scale": 0.1, "rounds": 1, "machine": good["machine"] | {"load_before": 8.0}}
    said = PARTS["machine"](busy)
    for reason in ("less than the whole load", "fewer than 3 rounds", "a machine that had other things to do"):
        assert reason in said
    assert "one round with 0.1 of the load" in said


def test_plots_of_what_was_measured(tmp_path: Path) -> None:
    grid = [
        variant(
            variant_name(producers, partitions),
            {OURS: rounds(records_per_s=[producers * 1000.0]), CONFLUENT: rounds(records_per_s=[partitions * 1.0])},
        )
        for producers in NUMBERS
        for partitions in PARTITIONS
    ]
    records = variant(
        "x", {OURS: rounds(records_per_core_s=[1.0, 2.0]), "a <b>": rounds(records_per_core_s=[3.0, 3.0])}
    )
    written = write_plots(result(("producers", grid), ("records", [records])), tmp_path)
    assert [path.name for path in written] == ["performance-records.svg", "performance-producers.svg"]
    space = "{http://www.w3.org/2000/svg}"
    bars = ET.fromstring(written[0].read_text())
    widths = [float(bar.attrib["width"]) for bar in bars.iter(f"{space}rect")]
    assert widths[0] == pytest.approx(widths[1] / 2, abs=0.1)
    assert "a <b>" in [text.text for text in bars.iter(f"{space}text")]
    lines = ET.fromstring(written[1].read_text())
    assert len(list(lines.iter(f"{space}polyline"))) == 2 * len(PARTITIONS)
    assert len(PLOTS) == 7


MOST_COMMITS = 50
"""Of the core, after which figures are measured again."""


def test_the_figures_are_not_of_an_old_core() -> None:
    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=DOCS, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("rev-parse", "--is-shallow-repository") != "false":
            pytest.skip("without the history there is nothing to count")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout")
    measured = json.loads((DOCS / "performance.json").read_text())["commit"]
    assert not measured.endswith("+"), "what was measured is in no commit"
    git("merge-base", "--is-ancestor", measured, "HEAD")
    assert int(git("rev-list", "--count", f"{measured}..HEAD", "--", "../shmaccum/core")) <= MOST_COMMITS
