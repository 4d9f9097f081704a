"""A Spark stream that writes each new file's lines to Kafka, exactly once over the death of its driver and workers.

spark-submit streaming.py INCOMING_DIRECTORY CHECKPOINT_DIRECTORY
"""

import os
import sys

from pyspark.sql import SparkSession

from shmaccum.config.settingsfile import read_settings

SETTINGS = read_settings(os.environ.get("PRODUCER_PROPERTIES", "../producer.properties"))

if __name__ == "__main__":
    incoming, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.appName("orders").getOrCreate()
    query = (
        spark.readStream.text(incoming)
        .selectExpr("value AS key", "concat('order ', value) AS value")
        .writeStream.format("shmaccum")  # was: "kafka"
        .options(**{f"kafka.{name}": value for name, value in SETTINGS.items()})
        .option("topic", "orders")
        .option("checkpointLocation", checkpoint)  # a killed driver goes on from here
        .option("exactlyOnce", "true")  # without it, at least once: a batch that is run again is written again
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()
