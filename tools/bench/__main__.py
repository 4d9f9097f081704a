"""``python -m tools.bench CASE``: runs a case, which prints its tables."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import tools.bench

CASES: Final = ("calls", "distance", "start")
"""Modules of this package, each with `add_options` and `run`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. It imports one case alone, because each import makes the forked processes larger."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=tools.bench.__doc__)
    cases = parser.add_subparsers(metavar="CASE", required=True)
    for name in CASES:
        text = ast.get_docstring(ast.parse(Path(__file__).with_name(f"{name}.py").read_text())) or ""
        case = cases.add_parser(
            name,
            help=text.partition("\n")[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name in given[:1]:
            module = import_module(f"tools.bench.{name}")
            module.add_options(case)
            case.set_defaults(run=module.run)
    options = parser.parse_args(given)
    options.run(options)


if __name__ == "__main__":
    main()
