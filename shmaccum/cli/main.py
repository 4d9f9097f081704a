"""The command line: ``shmaccum COMMAND``, or ``python -m shmaccum COMMAND``.

Each command is a module of this package with ``add_arguments(parser)`` and ``run(args)``; only the requested one is
imported. ``run`` returns the exit status, or raises a ShmaccumError or OSError that says what is wrong. Exit status: 0
done, 1 failed, 2 misused (the command line or a setting is wrong), 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from typing import Final

from shmaccum.abi import VERSION
from shmaccum.errors import ConfigError, ShmaccumError

_COMMANDS: Final = {
    "demo": "send 336,776 flights from PySpark through one slab, and check what arrived",
    "sender": "run the sender of a slab in the foreground",
    "status": "show slabs: memory, queues, producers, sender",
    "top": "watch slabs live; the first line says what is wrong",
    "doctor": "check the host, its slabs and the way to the brokers, and say what to do",
    "dump": "print the records of a log directory",
    "destroy": "remove a slab whose users are gone",
    "transactions": "list the cluster's transactions, and end those left open",
    "probe": "return a slab's health as the exit status",
    "exporter": "show the slabs' metrics to Prometheus",
}
_EPILOG: Final = """\
examples:
  shmaccum demo                       # everything once, with a check at the end
  shmaccum status --watch 1           # while producers work
  shmaccum dump demo-out --json | wc -l

`shmaccum COMMAND --help` shows more.
"""
_HELP_FORMAT: Final = partial(argparse.RawDescriptionHelpFormatter, max_help_position=32)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, by default that of the process's arguments; return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed, as some supervisors start programs
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # it stays open
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what its encoding does not have becomes a question mark
    # Every option of ours before the command ends the program, so the first word is the command.
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    parser, subparser = _parsers(command)
    try:
        if command and command not in _COMMANDS:
            nearest = difflib.get_close_matches(command.lower(), _COMMANDS, n=1)
            advice = f"did you mean {nearest[0]}?" if nearest else f"the commands are: {', '.join(_COMMANDS)}"
            parser.error(f"there is no command {command!r}; {advice}")
        args, unknown = parser.parse_known_args(arguments)
        if unknown:
            subparser.error(f"unknown arguments: {' '.join(unknown)}")
        status: int = import_module(f"shmaccum.cli.{command}").run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed its end, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit would raise again
        return 0
    except KeyboardInterrupt:
        return 130
    except (ShmaccumError, OSError) as error:
        print(f"shmaccum {command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return status


def _parsers(command: str) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Return the main parser, and the parser of the command; only the latter has the command's arguments."""
    parser = argparse.ArgumentParser(
        prog="shmaccum",
        description="One Kafka producer for all the Python processes of a host.",
        epilog=_EPILOG,
        formatter_class=_HELP_FORMAT,
    )
    parser.add_argument("--version", action="version", version=f"shmaccum {VERSION}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    chosen = parser
    for name, summary in _COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", formatter_class=_HELP_FORMAT
        )
        if name == command:
            import_module(f"shmaccum.cli.{name}").add_arguments(subparser)
            chosen = subparser
    return parser, chosen
