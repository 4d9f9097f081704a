"""Mutates inputs into nearly valid bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final

_LARGEST: Final = 1 << 16
"""Most bytes of an input."""
_NUMBERS: Final = (0, 1, 2, 7, 16, 61, 127, 128, 255, 256, 32767, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_VARINTS: Final = (
    b"\0",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\xff" * 4 + b"\x0f",
    b"\xfe" + b"\xff" * 3 + b"\x0f",
    b"\xff" * 9 + b"\x01",
)


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return bytes changed in a few places; a part can come from one of the others."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 8))):
        _change(rng, changed, others)
    return bytes(changed[:_LARGEST])


def _change(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    # What is in front decides how the rest is read.
    size = len(data)
    at = min(rng.randrange(size + 1), rng.randrange(size + 1)) if rng.random() < 0.5 else rng.randrange(size + 1)
    match rng.randrange(9):
        case 0 if at < size:
            data[at] ^= 1 << rng.randrange(8)
        case 1 if at < size:
            data[at] = rng.getrandbits(8)
        case 2:
            form = rng.choice((">h", ">i", ">q"))
            number = struct.pack(">q", rng.choice(_NUMBERS) * rng.choice((1, -1)))[-struct.calcsize(form) :]
            data[at : at + len(number)] = number
        case 3:
            data[at : at + rng.choice((0, 1))] = rng.choice(_VARINTS)
        case 4:
            del data[at : at + rng.choice((1, 1, 2, 4, 8, 64))]
        case 5:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))
        case 6:
            part = data[at : at + rng.randrange(1, 64)]
            data[at:at] = part * rng.choice((1, 1, 2, 50))
        case 7:
            del data[at:]
        case 8 if others:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            data[at : at + rng.choice((0, 16, size))] = other[start : start + rng.randrange(1, 400)]
        case _:
            data += rng.randbytes(4)
