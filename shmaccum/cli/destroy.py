"""``shmaccum destroy``: remove a slab whose users are gone."""

from __future__ import annotations

import argparse
from typing import Final

from shmaccum.errors import SlabNotFoundError
from shmaccum.shm import names
from shmaccum.shm.lifecycle import destroy

_EPILOG: Final = """\
A slab removes itself once its last user has left and nothing is left to send. This is for what stays behind
when all of them were killed. It is refused while a living process uses the slab, and, without --force, while the
slab holds records that have not been delivered. Root can remove the slabs of all users.

examples:
  shmaccum destroy orders
  shmaccum destroy orders --force     # the records that it holds are lost
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="the slab's name, as `shmaccum status` shows it")
    parser.add_argument("--force", action="store_true", help="even if it holds records: they are lost")


def run(args: argparse.Namespace) -> int:
    """Remove the slab.

    Raises:
        SlabError: why it is not removed.
    """
    try:
        lost = destroy(args.name, force=args.force)
    except SlabNotFoundError:
        raise no_such_slab(args.name) from None
    print(f"slab {args.name!r} is removed" + (f"; {lost} records were lost" if lost else ""))
    return 0


def no_such_slab(name: str) -> SlabNotFoundError:
    """Return the error for a slab that is not there; says which ones are."""
    there = ", ".join(names.slab_names())
    return SlabNotFoundError(f"there is no slab {name!r}; {f'there are: {there}' if there else 'there is none at all'}")
