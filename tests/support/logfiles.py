"""The files of a partition of the log: what they hold, and what a failing disk makes of them."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from senders import decode_batches


def read_log(directory: Path) -> list[tuple[int, bytes]]:
    """Return (offset, value) of all records of a partition, as kafka-python decodes its segments."""
    found = []
    for segment in sorted(directory.glob("*.log")):
        records, size = decode_batches(segment.read_bytes())
        assert size == segment.stat().st_size, f"{segment} ends in the middle of a batch"
        found += [(record.offset, record.value or b"") for record in records]
    return found


def put_device(segment: Path, device: str) -> None:
    """Have this process's descriptors of a segment lead to a device: a disk that fails in the middle of the work.

    ``/dev/full`` takes no byte, ``/dev/null`` takes everything; neither can be cut or synced.
    """
    replacement = os.open(device, os.O_RDWR)
    found = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(FileNotFoundError):  # the one that the listing itself used
            if os.readlink(f"/proc/self/fd/{number}") == str(segment):
                os.dup2(replacement, number)
                found += 1
    os.close(replacement)
    assert found == 1


@contextlib.contextmanager
def disk_full_beyond(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: ``write`` first writes a part, then fails with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def open_files(directory: Path) -> list[str]:
    """Names of the files in ``directory`` of which this process has a descriptor."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that the listing itself used
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            found += [path.name] if path.parent == directory else []
    return sorted(found)
