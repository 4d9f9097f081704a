"""``shmaccum demo``: the whole path from Spark to Kafka or to a log, verified."""

from shmaccum.cli.demo.command import add_arguments, run

__all__ = ["add_arguments", "run"]
