"""``shmaccum demo``: the whole path from Spark to Kafka or to a log, and a check of what arrived."""

from shmaccum.cli.demo.command import add_arguments, run

__all__ = ["add_arguments", "run"]
