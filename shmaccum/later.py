"""Libraries in the form that takes least of a process: most are imported when they are first used.

numpy takes half of a producer's memory, and of its start. Modules that a program imports in order to send take ``np``
from here, for their functions that rebuild, inspect or wait for many records. A sender needs none of it, either. What
works on columns imports numpy itself.

hashlib loads OpenSSL, which takes 4 MB. Its ``blake2b`` is here without that, as the standard library's ``random`` has
its hash.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["blake2b", "cramjam", "np"]

try:
    from _blake2 import blake2b
except ImportError:  # another Python can have it elsewhere
    from hashlib import blake2b

if TYPE_CHECKING:
    import cramjam
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
    np = _Later("numpy")
