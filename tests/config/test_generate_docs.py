"""tools/generate_docs: the generated documents say what the code says."""

from pathlib import Path

from fixture_types import Capture

from tools.generate_docs import __main__ as tool


def test_the_documents_are_up_to_date(capsys: Capture) -> None:
    assert tool.main(["--check"]) == 0, f"run `make docs`\n{capsys.readouterr().out}"


def test_check_shows_what_is_missing_or_stale_and_writes_nothing(tmp_path: Path, capsys: Capture) -> None:
    assert tool.main(["--check"], tmp_path) == 1
    assert list(tmp_path.iterdir()) == []
    assert tool.main([], tmp_path) == 0
    document = tmp_path / "docs" / "configuration.md"
    stale = document.read_text().replace("`linger.ms` |", "`linger.msec` |")
    document.write_text(stale)

    assert tool.main(["--check"], tmp_path) == 1
    shown = capsys.readouterr().out
    assert "-| `linger.msec` |" in shown
    assert "+| `linger.ms` |" in shown
    assert document.read_text() == stale
