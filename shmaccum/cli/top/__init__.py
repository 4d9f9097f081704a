"""``shmaccum top``: watches slabs live; its first line says in words what is wrong."""

from shmaccum.cli.top.command import add_arguments, run

__all__ = ["add_arguments", "run"]
