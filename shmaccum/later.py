"""Libraries that are imported when they are first used, since `Producer.send` needs none of them.

numpy takes half of a producer's memory, and of its start. Modules that a program imports in order to send take ``np``
from here, for their functions that rebuild, inspect or wait for many records. A sender needs none of it, either. What
works on columns imports numpy itself. Producers leave checksums to the sender: crc32c imports ``argparse``, and so
takes more memory than numpy's largest module.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["cramjam", "crc32c", "np"]

if TYPE_CHECKING:
    import cramjam
    import crc32c
    import numpy as np
else:

    class _Later:
        """Stands for a module."""

        def __init__(self, name: str) -> None:
            self.__dict__["__name__"] = name

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module(self.__dict__["__name__"]), name)
            setattr(self, name, value)  # from now on as fast as the module
            return value

    cramjam = _Later("cramjam")
    crc32c = _Later("crc32c")
    np = _Later("numpy")
