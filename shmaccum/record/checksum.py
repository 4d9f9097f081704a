"""CRC-32C, imported on first use.

Producers leave the checksum to the sender. The package takes more memory in a process than numpy's largest module,
because it imports ``importlib.metadata`` and ``argparse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c


def __getattr__(name: str) -> Any:
    if name != "crc32c":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    global crc32c
    from crc32c import crc32c

    return crc32c
