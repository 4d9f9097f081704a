"""A Spark batch job that writes a file's lines to Kafka.

spark-submit batch.py orders.txt
"""

import os
import sys

from pyspark.sql import SparkSession

from shmaccum.config.settingsfile import read_settings

SETTINGS = read_settings(os.environ.get("PRODUCER_PROPERTIES", "../producer.properties"))

if __name__ == "__main__":
    spark = SparkSession.builder.appName("orders").getOrCreate()
    (
        spark.read.text(sys.argv[1])
        .selectExpr("value AS key", "concat('order ', value) AS value")
        .write.format("shmaccum")  # was: "kafka"
        .mode("append")
        .options(**{f"kafka.{name}": value for name, value in SETTINGS.items()})
        .option("topic", "orders")
        .save()  # returns when every row is acknowledged; a task whose worker is killed runs again
    )
    spark.stop()
