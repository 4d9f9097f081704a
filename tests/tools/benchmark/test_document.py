"""docs/performance.md, its tables and its plots are what docs/performance.json makes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from benchmark_results import result, rounds, variant

from tools.benchmark.contestants import OURS
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
    plots = write_plots(measured, tmp_path)
    assert len(plots) == len(PLOTS)
    for plot in plots:
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


def test_every_part_and_plot_can_do_without_figures(tmp_path: Path) -> None:
    for make in PARTS.values():
        assert make(result())
    assert write_plots(result(), tmp_path) == []


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
