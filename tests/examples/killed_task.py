"""A task that `test_celery` adds to those of examples/celery: the first time, its child is killed at its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tasks import app, producer  # type: ignore[import-not-found]


@app.task  # type: ignore[untyped-decorator]
def accept_and_die(order: str) -> int:
    """Send an order; kill this process, unless that has happened to an earlier attempt."""
    producer.send("orders", f"order {order}", key=order)
    killed = Path("killed")
    if not killed.exists():
        killed.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()
