"""``shmaccum doctor``: finds what in this host, its slabs and the cluster will not work, and says what to do."""

from shmaccum.cli.doctor.command import add_arguments, run

__all__ = ["add_arguments", "run"]
