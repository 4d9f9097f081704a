"""What the tests name as ``sasl.oauthbearer.token.provider``."""

from __future__ import annotations

import base64
import json
import time


def token() -> str:
    """Return a token without a signature, as the brokers of the tests take them."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + 3600})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join(encoded) + "."


LONG_TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MTcwMDAwMDAwMH0.c2lnbmF0dXJl"


def long_token() -> str:
    return LONG_TOKEN


def no_token() -> str:
    raise RuntimeError("the answer was: client_secret=very-secret")
