"""A Celery worker whose tasks send records.

celery -A tasks worker --pool prefork --concurrency 2
"""

import os

from celery import Celery

from shmaccum import Producer

app = Celery("tasks")
app.config_from_object("celeryconfig")

# Made before Celery forks its pool; each child goes on with it. A child that Celery replaces needs no shutdown hook.
producer = Producer.from_file(os.environ.get("PRODUCER_PROPERTIES", "../producer.properties"))


@app.task
def accept(order):
    """Send an order; the task succeeds when the record is in shared memory."""
    producer.send("orders", f"order {order}", key=order)
    return os.getpid()


@app.task
def deliver(order):
    """Send an order; the task succeeds when Kafka has it."""
    producer.send("orders", f"order {order}", key=order).get(timeout=60)
    return os.getpid()
