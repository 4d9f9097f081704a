"""Greenlets that share a producer, in a program that gevent or eventlet has patched. Run by `test_greenlets`.

Takes a function's name, the library, when to patch, and the settings as JSON. Prints the result as JSON.

* first: before anything else.
* late: after the producer was made, in a forked child, as gunicorn's workers do with a preloaded application.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

GREENLETS, RECORDS = 50, 20

HOLD = """
import sys, time
from shmaccum.shm.lifecycle import attach
slab = attach(sys.argv[1])
slab.stripe(int(sys.argv[2])).core.acquire_now()
print("held", flush=True)
time.sleep(60)
"""


def sender_of(producer: Any) -> int:
    """Return the process id of the sender."""
    from shmaccum.shm.lifecycle import look

    with look(producer._slab.name) as view:
        return int(view.sender().pid or 0)


def stress(producer: Any) -> dict[str, Any]:
    """Have greenlets send, flush and wait, all at once; then kill the sender, and call nothing.

    Return what went wrong, and how many senders there have been.
    """
    import threading

    from shmaccum._core import Super

    errors: list[str] = []

    def run(greenlet: int) -> None:
        for number in range(RECORDS):
            try:
                value = b"%d:%d:" % (greenlet, number) + bytes(number % 7 * 500)
                future = producer.send("t", value, b"key %d" % greenlet)
                if number % 20 == 17:
                    assert future.get(20).offset >= 0
                elif number % 20 == 11:
                    producer.flush(20)
                    assert future.succeeded()
                elif number % 10 == 3:
                    producer.poll(0.002)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(GREENLETS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(20)
    metrics = producer.metrics()["producer-metrics"]
    while not metrics["buffer-available-bytes"]:  # the last record needs memory that a stopped sender does not free
        time.sleep(0.01)
        metrics = producer.metrics()["producer-metrics"]
    words = producer._slab.words
    sender = sender_of(producer)
    os.kill(sender, signal.SIGSTOP)
    producer.send("t", b"last")
    os.kill(sender, signal.SIGKILL)
    end = time.monotonic() + 20
    while words[Super.SENDER_STARTS] < 2 and time.monotonic() < end:
        time.sleep(0.05)
    starts = words[Super.SENDER_STARTS]
    closing = [threading.Thread(target=producer.close) for _ in range(2)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
    return {"errors": errors, "waited_for_memory": metrics["bufferpool-wait-time-ns-total"] > 0, "starts": starts}


def waits(producer: Any) -> dict[str, Any]:
    """Have each call wait for what does not come; return how it ended, and how often another greenlet ran meanwhile."""
    import threading

    slab = producer._slab
    producer.send("t", b"value", partition=0).get(20)
    sender = sender_of(producer)
    queue = producer._accumulator.state.map.topic("t").queues[2]
    holder = subprocess.Popen([sys.executable, "-c", HOLD, slab.name, str(queue.entry)], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    os.kill(sender, signal.SIGSTOP)
    future = producer.send("t", b"value", partition=0)

    def send_until_full() -> None:
        while True:
            producer.send("t", bytes(3000), partition=0)

    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: future.get(0.4),
        "poll": lambda: producer.poll(0.4),
        "flush": lambda: producer.flush(0.4),
        "metadata": lambda: producer.partitions_for("new"),
        "memory": send_until_full,
        "lock": lambda: producer.send("t", b"value", partition=2),
    }
    over: list[bool] = []
    ticks = [0]

    def tick() -> None:
        while not over:
            time.sleep(0.01)
            ticks[0] += 1

    clock = threading.Thread(target=tick)
    clock.start()
    found = {}
    for name, call in calls.items():
        before, error = ticks[0], ""
        try:
            call()
        except Exception as raised:
            error = type(raised).__name__
        found[name] = (error, ticks[0] - before)
    over.append(True)
    clock.join()
    holder.kill()
    holder.wait()
    os.kill(sender, signal.SIGCONT)
    producer.close()
    return found


def patch(library: str) -> None:
    if library == "gevent":
        from gevent import monkey

        monkey.patch_all()
    else:
        warnings.simplefilter("ignore")
        import eventlet

        eventlet.monkey_patch()


def main(deed: str, library: str, when: str, settings: str) -> None:
    if when == "first":
        patch(library)
        from shmaccum import Producer

        print(json.dumps(globals()[deed](Producer(json.loads(settings)))))
        return
    from shmaccum import Producer

    producer = Producer(json.loads(settings))
    producer.partitions_for("t")
    if pid := os.fork():
        status = os.waitpid(pid, 0)[1]
        producer.close()
        sys.exit(os.waitstatus_to_exitcode(status))
    patch(library)
    print(json.dumps(globals()[deed](producer)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
