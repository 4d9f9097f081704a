"""A task as Airflow runs it: forked, ended by os._exit, killed when it takes too long, and tried again.

python airflow_like.py
"""

import os
import signal
import time
import traceback

from shmaccum import Producer

SETTINGS = os.environ.get("PRODUCER_PROPERTIES", "producer.properties")
ORDERS = int(os.environ.get("ORDERS", "1000"))


def task(attempt):
    """Send orders: what a function with @task holds. It succeeds when Kafka has them all."""
    producer = Producer.from_file(SETTINGS)
    for order in range(ORDERS):
        producer.send("orders", f"order {order}", key=str(order), headers=[("attempt", b"%d" % attempt)])
        print("accepted", f"{order}:{attempt}", os.getpid(), flush=True)
    producer.flush(60)  # raises if a record is not acknowledged: the task then fails, and Airflow tries it again


def run(attempt, timeout_s):
    """Run the task in a forked process, as Airflow's runner does; return its exit status."""
    child = os.fork()
    if child == 0:
        try:
            task(attempt)
            os._exit(0)  # no exit handler runs: no producer is closed, and nothing is lost
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    deadline = time.monotonic() + timeout_s
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for attempt in range(1, 4):
        status = run(attempt, timeout_s=300)
        print("attempt", attempt, "ended with", status, flush=True)
        if status == 0:
            break
