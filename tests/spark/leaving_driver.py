"""A driver that ends amid a batch of its query, for `test_exactly_once`; with the sink's options as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from spark_writes import session_builder, stalling_query

directory, options = Path(sys.argv[1]), json.loads(sys.argv[2])
session = session_builder("local[2]", directory, spark_driver_memory="512m").getOrCreate()
session.sparkContext.setLogLevel("OFF")
stalling_query(session, options, directory / "stalling")
print("started", flush=True)
sys.stdin.read()
