"""A web application whose every request sends a record; `test_gunicorn` has gunicorn serve it.

Its path is the record's value and key. Settings come by the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from shmaccum import Producer

producer = Producer(json.loads(os.environ["SHMACCUM_TEST_SETTINGS"]))


def application(environ: dict[str, Any], start_response: Callable[[str, list[Any]], Any]) -> Iterable[bytes]:
    number = int(environ["PATH_INFO"][1:])
    try:
        key = b"%d" % number
        future = producer.send("t", key + b":" + bytes(number % 5 * 500), key)
        if number % 4 == 1:
            assert future.get(20).offset >= 0
        elif number % 10 == 2:
            producer.flush(20)
        elif number % 4 == 3:
            producer.poll()
    except Exception as error:
        start_response("500 Internal Server Error", [])
        return [f"{type(error).__name__}: {error}".encode()]
    start_response("200 OK", [])
    return [b"%d" % os.getpid()]
