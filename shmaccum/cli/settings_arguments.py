"""Command-line arguments that several commands take: a producer's settings, time spans, addresses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Final

from shmaccum.config.settingsfile import is_secret, parse_settings, read_settings
from shmaccum.errors import ConfigError

SETTINGS_HELP: Final = """\
FILE holds lines of NAME=VALUE as Kafka's own tools read them, or one JSON object, with the names of
docs/configuration.md. The producers' own file works. Keep passwords in it: every user of the host can read a command's
arguments."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Declare ``--config`` and ``-X``."""
    parser.add_argument("--config", metavar="FILE", help="settings: Java properties or JSON; - reads standard input")
    parser.add_argument(
        "-X",
        dest="settings",
        metavar="NAME=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="one setting, which overrides the one in FILE; no passwords here",
    )


def given_settings(args: argparse.Namespace, defaults: Mapping[str, object]) -> dict[str, object]:
    """Return the given settings on top of ``defaults``. Raises ConfigError: the file cannot be read."""
    given: dict[str, object] = {}
    if args.config == "-":
        if sys.stdin is None:
            raise ConfigError("cannot read settings from standard input: it is closed")
        try:
            given = parse_settings(sys.stdin.read().removeprefix("\ufeff"), "standard input")
        except UnicodeDecodeError as error:
            raise ConfigError("cannot read settings from standard input: it is not UTF-8 text") from error
    elif args.config is not None:
        given = read_settings(args.config)
    return {**defaults, **given, **dict(args.settings)}


def seconds(text: str) -> float:
    """Parse a time span, for ``type=`` of an argument."""
    try:
        span = float(text)
    except ValueError:
        span = 0.0
    if not 0 < span < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return span


def address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``, ``[IPV6]:PORT``, ``:PORT`` or ``PORT`` for ``type=``; the host is 127.0.0.1 by default."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16) or (":" in bare and bare == host):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return bare or "127.0.0.1", int(port)


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    name = name.strip()
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if is_secret(name):
        raise argparse.ArgumentTypeError(
            f"{name} belongs in a file, for --config: every user of the host can read a command's arguments"
        )
    return name, value
