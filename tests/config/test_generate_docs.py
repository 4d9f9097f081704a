"""tools/generate_docs.py: the generated documents say what the code says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from shmaccum.config import ProducerConfig

TOOL = Path(__file__).resolve().parents[2] / "tools" / "generate_docs.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documents_are_up_to_date(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--check"]) == 0, f"run tools/generate_docs.py\n{capsys.readouterr().out}"


def test_check_shows_what_is_stale_and_writes_nothing(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main([], tmp_path) == 0
    document = tmp_path / "docs" / "configuration.md"
    stale = document.read_text().replace("`linger.ms` |", "`linger.msec` |")
    document.write_text(stale)

    assert tool.main(["--check"], tmp_path) == 1
    shown = capsys.readouterr().out
    assert "-| `linger.msec` |" in shown
    assert "+| `linger.ms` |" in shown
    assert document.read_text() == stale


def test_check_finds_a_document_that_is_missing(tool: ModuleType, tmp_path: Path) -> None:
    assert tool.main(["--check"], tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_every_setting_has_its_row(tool: ModuleType) -> None:
    lines = tool.configuration().splitlines()

    for name, setting in ProducerConfig.settings.items():
        (row,) = [line for line in lines if line.startswith(f"| `{name}` |")]
        assert setting.doc in row
    assert "`33554432` (32 mebibytes)" in "\n".join(lines)
    assert "`60000` (1 minute)" in "\n".join(lines)
