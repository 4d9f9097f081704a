"""``shmaccum destroy``: removes a slab whose users are gone."""

from __future__ import annotations

import argparse
from typing import Final

from shmaccum.errors import SlabNotFoundError
from shmaccum.shm import names
from shmaccum.shm.lifecycle import destroy

_EPILOG: Final = """\
A slab removes itself once its last user has left and nothing is left to send. Use this for a slab that stays behind
because all its users were killed. It is refused while a living process uses the slab. Without --force, it is also
refused while the slab holds undelivered records, or cannot be read. Root can remove the slabs of all users.

examples:
  shmaccum destroy orders
  shmaccum destroy orders --force     # discards the records in it
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="the slab's name, as `shmaccum status` shows it")
    parser.add_argument("--force", action="store_true", help="remove it even if it holds records, and discard them")


def run(args: argparse.Namespace) -> int:
    """Remove the slab, or the shards of that name one after the other."""
    try:
        for name in names.slabs_of(args.name) or [args.name]:
            lost = destroy(name, force=args.force)
            print(f"removed slab {name!r}" + (f"; {lost} records were lost" if lost else ""))
    except SlabNotFoundError:
        from shmaccum.observe.report import no_such_slab  # with half of the package

        raise no_such_slab(args.name) from None
    return 0
