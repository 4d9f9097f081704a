"""The command lines of the tools."""

from __future__ import annotations

import argparse


def command_line(tool: str, about: str | None, epilog: str = "") -> argparse.ArgumentParser:
    """Return the parser of ``python -m tools.<tool>``, which shows both texts as they are."""
    return argparse.ArgumentParser(
        prog=f"python -m tools.{tool}",
        description=about,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
