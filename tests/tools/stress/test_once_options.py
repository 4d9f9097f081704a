"""Options of `--exactly-once`: what belongs to one kind of run is refused in the others, with the kind."""

from __future__ import annotations

import pytest

from tools.stress import once_options, options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kill-executor", "0.1"], "--kill-executor is for --spark local-cluster only"),
        (["--spark", "local", "--kill-executor", "0.1"], "--kill-executor is for --spark local-cluster only"),
        (["--spark", "local", "--stop-worker", "0.1"], "--stop-worker is for runs without --spark only"),
        (["--fail-task", "0.1"], "--fail-task is for --spark local and --spark local-cluster only"),
        (["--spark", "yarn"], "argument --spark: invalid choice: 'yarn'"),
    ],
)
def test_a_wrong_combination(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        once_options.parse(arguments)
    assert message in capsys.readouterr().err


def test_spark_needs_exactly_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--spark", "local"])
    assert "--spark needs --exactly-once" in capsys.readouterr().err


def test_defaults_of_each_kind() -> None:
    assert once_options.parse([]).workers == 3
    assert once_options.parse(["--spark", "local-cluster"]).kill_executor > 0
    assert once_options.parse(["--spark", "local"]).kill_driver < once_options.parse([]).kill_driver
