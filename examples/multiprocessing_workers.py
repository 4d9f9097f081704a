"""Processes of multiprocessing that send records, by any start method.

python multiprocessing_workers.py fork|spawn|forkserver
"""

import multiprocessing
import os
import sys
from functools import cache

from shmaccum import Producer


@cache
def producer():
    """Return this process's producer: a forked child inherits its parent's, any other makes one."""
    return Producer.from_file(os.environ.get("PRODUCER_PROPERTIES", "producer.properties"))


def work(worker, orders):
    """Send orders. Nothing has to be flushed at the end: what was accepted is sent, even after a kill."""
    for number in range(orders):
        producer().send("orders", f"order {number} of worker {worker}", key=f"{worker}-{number}")
        print("accepted", f"{worker}-{number}", os.getpid(), flush=True)


if __name__ == "__main__":
    method, workers, orders = sys.argv[1], 3, int(os.environ.get("ORDERS", "1000"))
    multiprocessing.set_start_method(method)
    producer().partitions_for("orders")  # starts the sender, and asks for the topic, before there are workers
    processes = [multiprocessing.Process(target=work, args=(worker, orders)) for worker in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    for worker, process in enumerate(processes):
        if process.exitcode:
            print("worker", worker, "ended with", process.exitcode)
    producer().close()
