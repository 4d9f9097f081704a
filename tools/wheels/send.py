"""Sends records with whatever shmaccum is installed, and counts them; needs nothing else, and no broker.

`python -m tools.wheels` runs a copy of it in each new environment, and so does cibuildwheel. It prints where shmaccum
is, the machine and the version of CPython.
"""

import platform
import subprocess
import sys
import tempfile

import shmaccum
from shmaccum import Producer

RECORDS = 1000

if not shmaccum.compiled:
    sys.exit(f"the plain form is installed in {shmaccum.__file__}")
with tempfile.TemporaryDirectory() as log:
    with Producer({"transport": "log", "log.dir": log, "sender.idle.ms": 100}) as producer:
        producer.send("flights", b"value", key=b"UA1545").get(timeout=120)
        for number in range(RECORDS - 1):
            producer.send("flights", f"flight {number}")
        producer.flush()
    dump = [sys.executable, "-m", "shmaccum", "dump", log, "--json"]
    found = subprocess.run(dump, capture_output=True, text=True, check=True).stdout.count("\n")
if found != RECORDS:
    sys.exit(f"the log has {found} records, and not {RECORDS}")
print(shmaccum.__file__, platform.machine(), platform.python_version())
