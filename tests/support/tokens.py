"""What the tests name as ``sasl.oauthbearer.token.provider``."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from pathlib import Path


def token() -> str:
    """Return a token without a signature, as the brokers of the tests take them."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + 3600})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join(encoded) + "."


may_return = threading.Event()
"""What `slow_token` waits for."""
asked: list[str] = []
"""The threads that asked for a slow token."""


def slow_token() -> str:
    asked.append(threading.current_thread().name)
    may_return.wait()
    return token()


def token_of_a_file() -> str:
    """Return a token once the file named ``may-return`` is in the directory TOKENS; leaves a file there when asked."""
    directory = Path(os.environ["TOKENS"])
    (directory / "asked").touch()
    while not (directory / "may-return").exists():
        time.sleep(0.02)
    return token()


LONG_TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MTcwMDAwMDAwMH0.c2lnbmF0dXJl"


def long_token() -> str:
    return LONG_TOKEN


def no_token() -> str:
    raise RuntimeError("the answer was: client_secret=very-secret")
