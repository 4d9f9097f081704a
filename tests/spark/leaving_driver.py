"""A driver that ends amid a batch of its query, for `test_exactly_once`; with the sink's options as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from spark_writes import stalling_query

directory, options = Path(sys.argv[1]), json.loads(sys.argv[2])
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.local.dir", str(directory))
    .config("spark.sql.catalogImplementation", "in-memory")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    .getOrCreate()
)
session.sparkContext.setLogLevel("OFF")
stalling_query(session, options, directory / "stalling")
print("started", flush=True)
sys.stdin.read()
