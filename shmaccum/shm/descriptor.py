"""A descriptor that the program can close behind our back; then its number can be another file's.

Whoever becomes a daemon closes all descriptors that it does not know. So we make sure of a descriptor before each use
that would change the file, or that asks what only our own file can tell. That is a system call, and none of these uses
is on the way of every record.
"""

from __future__ import annotations

import os


class Descriptor:
    """An open file, by its number.

    Args:
        number: of the descriptor; -1 for none.
    """

    def __init__(self, number: int = -1) -> None:
        self.number = number
        self.file = file_of(os.fstat(number)) if number >= 0 else (-1, -1)
        """The device and inode."""

    def is_ours(self) -> bool:
        """Return whether the number is still that of the file that was opened."""
        try:
            return self.number >= 0 and file_of(os.fstat(self.number)) == self.file
        except OSError:
            return False

    def close(self) -> None:
        """Close it, unless it is closed already, or its number is another file's."""
        is_ours = self.is_ours()
        number, self.number = self.number, -1  # in this order: an interrupt may have it called again
        if is_ours:
            os.close(number)


def file_of(status: os.stat_result) -> tuple[int, int]:
    """Return which file it is, of all there are."""
    return status.st_dev, status.st_ino
