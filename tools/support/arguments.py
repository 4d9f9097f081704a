"""The command lines of the tools."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

Numbers = Mapping[str, Mapping[str, Any]]
"""Option with a number -> its metavar and help, its default, its bounds if not 0 and 1e9. Of a tool with several kinds
of runs, the default can be a table by kind; then the option is for these only."""


def command_line(tool: str, about: str | None, epilog: str = "") -> argparse.ArgumentParser:
    """Return the parser of ``python -m tools.<tool>``, which shows both texts as they are."""
    return argparse.ArgumentParser(
        prog=f"python -m tools.{tool}",
        description=about,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_numbers(parser: argparse.ArgumentParser, numbers: Numbers) -> None:
    for name, number in numbers.items():
        defaults = number["default"]
        if isinstance(defaults, Mapping):
            defaults = "; ".join(f"{kind}: {default}" for kind, default in defaults.items())
        about = f"{number['help']} [{defaults}]"
        parser.add_argument(f"--{name}", metavar=number["metavar"], type=partial(_number, number), help=about)


def set_numbers(parser: argparse.ArgumentParser, options: argparse.Namespace, numbers: Numbers, kind: str) -> None:
    """Set the options that were not given, to 0 if this kind has none; end with a message if one is for others only."""
    for name, number in numbers.items():
        attribute, defaults = name.replace("-", "_"), number["default"]
        by_kind = defaults if isinstance(defaults, Mapping) else {kind: defaults}
        if getattr(options, attribute) is None:
            setattr(options, attribute, by_kind.get(kind, 0))
        elif kind not in by_kind:
            parser.error(f"--{name} is for {' and '.join(by_kind)} only")


def _number(number: Mapping[str, Any], text: str) -> float:
    default = number["default"]
    some = next(iter(default.values())) if isinstance(default, Mapping) else default
    try:
        value: float = type(some)(text)
    except ValueError:
        kind = "whole number" if isinstance(some, int) else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {kind}") from None
    least, most = number.get("least", 0), number.get("most", 1e9)
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {most:g}")
    return value
