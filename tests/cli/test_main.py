"""What all commands have in common: help, misuse, failure, and a reader that has seen enough."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from fixture_types import Capture, Command
from runs import ROOT

from shmaccum import __version__
from shmaccum.cli.main import main

COMMANDS = ["demo", "sender", "status", "top", "doctor", "dump", "destroy", "transactions", "probe", "exporter"]


def test_version(capfd: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capfd.readouterr().out == f"shmaccum {__version__}\n"


def test_help_names_all_commands_and_each_has_its_own(capfd: Capture) -> None:
    for command in ("", *COMMANDS):
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"] if command else ["--help"])
        out = capfd.readouterr().out
        assert out.startswith(f"usage: shmaccum {command or '[-h]'} ")
        assert command or all(f"\n    {each}" in out for each in COMMANDS)


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
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("usage: shmaccum")
    assert said in err
    assert "hush" not in err


def test_a_failure_is_one_line_and_status_1(slab_name: str, capfd: Capture) -> None:
    assert main(["status", slab_name]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"shmaccum status: there is no slab '{slab_name}'; there ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["shmaccum status", "shmaccum --help", "tools.benchmark --list"])
def test_a_reader_that_is_gone_is_no_error(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as output:
        words = [sys.executable, "-m", *command.split()]
        done = subprocess.run(words, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_standard_output_is_no_error() -> None:
    words = [sys.executable, "-m", "shmaccum", "status"]
    done = subprocess.run(words, preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_from_a_closed_standard_input() -> None:
    words = [sys.executable, "-m", "shmaccum", "doctor", "--config", "-"]
    done = subprocess.run(words, preexec_fn=lambda: os.close(0), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "shmaccum doctor: cannot read settings from standard input: it is closed\n"


def test_what_the_output_cannot_encode_becomes_a_question_mark() -> None:
    words = [sys.executable, "-m", "shmaccum", "doctor", "-X", "transport=log", "-X", "log.dir=/tmp/дом"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert "/tmp/??? can be made" in done.stdout


def test_an_interrupt_is_quiet(shmaccum: Command) -> None:
    with shmaccum("status", "--json", "--watch", "60") as process:
        assert "slabs" in json.loads(process.stdout.readline()), "one object a line"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 130
