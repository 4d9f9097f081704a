"""A Spark job that sends records itself, in foreachPartition.

spark-submit foreach_partition.py orders.txt
"""

import os
import sys

from pyspark.sql import SparkSession

from shmaccum.config.settingsfile import read_settings
from shmaccum.spark import producer

SETTINGS = read_settings(os.environ.get("PRODUCER_PROPERTIES", "../producer.properties"))


def send(rows):
    """Send the rows of a partition, by the one producer that the worker keeps for all of its tasks."""
    mine = producer(SETTINGS)
    for row in rows:
        mine.send("orders", f"order {row.value}", key=row.value)
    mine.flush()  # the task fails, and runs again, if a record is not acknowledged


if __name__ == "__main__":
    spark = SparkSession.builder.appName("orders").getOrCreate()
    spark.read.text(sys.argv[1]).foreachPartition(send)
    spark.stop()
