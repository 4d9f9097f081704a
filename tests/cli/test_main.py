"""What all commands have in common: help, misuse, failure, and a reader that has seen enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fixture_types import Capture, Command

from shmaccum import __version__
from shmaccum.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ["demo", "sender", "status", "top", "doctor", "dump", "destroy", "transactions", "probe", "exporter"]


def misuse(capfd: Capture, *arguments: str) -> str:
    """Run what must be refused with status 2; return what it says."""
    with pytest.raises(SystemExit) as exit:
        main(list(arguments))
    assert exit.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    return err


def test_version(capfd: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capfd.readouterr().out == f"shmaccum {__version__}\n"


def test_help_names_all_commands(capfd: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    out = capfd.readouterr().out
    assert all(f"\n    {command}" in out for command in COMMANDS)
    assert "examples:" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capfd: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert capfd.readouterr().out.startswith(f"usage: shmaccum {command} ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["stauts"], "there is no command 'stauts'; did you mean status?"),
        (["DUMP"], "there is no command 'DUMP'; did you mean dump?"),
        (["xyz"], "there is no command 'xyz'; the commands are: demo, sender, status, top, doctor, dump, destroy"),
        (["status", "--jsn"], "shmaccum status: error: unknown arguments: --jsn"),
        (["status", "--watch", "0"], "argument --watch: '0' is not a number of seconds above 0"),
        (["status", "--watch", "soon"], "argument --watch: 'soon' is not a number of seconds above 0"),
        (["destroy"], "shmaccum destroy: error: the following arguments are required: NAME"),
        (["sender", "-X", "sasl.password=hush"], "sasl.password belongs in a file, for --config"),
        (["sender", "-X", "linger.ms"], "argument -X: 'linger.ms' is not NAME=VALUE"),
        (["demo", "--workers", "0"], "argument --workers: '0' is not a whole number above 0"),
    ],
)
def test_misuse(arguments: list[str], said: str, capfd: Capture) -> None:
    err = misuse(capfd, *arguments)
    assert err.startswith("usage: shmaccum")
    assert said in err
    assert "hush" not in err


def test_a_failure_is_one_line_and_status_1(slab_name: str, capfd: Capture) -> None:
    assert main(["status", slab_name]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"shmaccum status: there is no slab '{slab_name}'; there ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "shmaccum", "status"],
        ["-m", "shmaccum", "--help"],
        ["-m", "tools.benchmark", "--list"],
    ],
    ids=" ".join,
)
def test_a_reader_that_is_gone_is_no_error(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as output:
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_is_quiet(shmaccum: Command) -> None:
    with shmaccum("status", "--json", "--watch", "60") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 130
