"""A ProcessPoolExecutor whose workers send records, and which is replaced when a worker is killed.

python process_pool.py
"""

import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache

from shmaccum import Producer


@cache
def producer():
    """Return this process's producer: a forked worker inherits its parent's, any other makes one."""
    return Producer.from_file(os.environ.get("PRODUCER_PROPERTIES", "producer.properties"))


def accept(order):
    """Send an order; return when the record is in shared memory."""
    producer().send("orders", f"order {order}", key=str(order))
    return os.getpid()


def accept_all(orders):
    """Accept all orders, in one pool after the other. An order whose worker was killed is sent again."""
    waiting = set(orders)
    while waiting:
        with ProcessPoolExecutor(max_workers=2, initializer=producer) as pool:
            try:
                futures = {order: pool.submit(accept, order) for order in sorted(waiting)}
                for order, future in futures.items():
                    print("accepted", order, future.result(), flush=True)
                    waiting.remove(order)
            except BrokenProcessPool:
                print("a worker was killed:", len(waiting), "orders wait for the next pool", flush=True)


if __name__ == "__main__":
    accept_all(range(int(os.environ.get("ORDERS", "1000"))))
    producer().close()  # waits for acknowledgements of this process; what the workers sent, the sender delivers
