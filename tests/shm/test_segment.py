"""The segment: foreign, incomplete and other versions' ones are refused; memory is reserved or refused."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start
from runs import run_python
from slab_helpers import overwrite, run_where_shm_has

from shmaccum import procfs
from shmaccum._core import WORD, Geometry, Super
from shmaccum.abi import ABI_VERSION
from shmaccum.errors import SlabAbiError, SlabMemoryError, SlabPermissionError
from shmaccum.shm import names
from shmaccum.shm.layout import MAGIC
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.segment import Segment


@pytest.fixture
def path(slab_name: str) -> Iterator[Path]:
    path = Path(names.segment_path(slab_name))
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def segment(slab_name: str, path: Path, geometry: Geometry) -> Iterator[Segment]:
    """Make a finished segment."""
    segment = Segment.create(slab_name, geometry, digest=77)
    segment.words[Super.READY] = 1
    yield segment
    segment.close()


# --- making and opening ---------------------------------------------------------------------------


def test_a_superblock_describes_its_segment(segment: Segment, path: Path, geometry: Geometry) -> None:
    words = segment.words
    assert words[Super.MAGIC] == MAGIC
    assert words[Super.ABI] == ABI_VERSION
    assert words[Super.TOTAL_SIZE] == geometry.total_size == path.stat().st_size == len(segment.buffer)
    assert words[Super.OWNER_UID] == os.geteuid()
    assert words[Super.DIGEST] == 77
    assert path.stat().st_blocks * 512 >= geometry.total_size, "all of its memory is reserved"


def test_what_still_holds_a_closed_segment_has_zeros_of_its_own(segment: Segment, slab_name: str) -> None:
    """So that it keeps no shared memory from being freed."""
    again = Segment.open(slab_name)
    assert again is not None
    view = again.buffer[:8]
    again.close()
    assert bytes(view) == bytes(8)
    view[:8] = b"anything"
    assert segment.words[Super.MAGIC] == MAGIC
    assert Path("/proc/self/maps").read_text().count(f"{slab_name}\n") == 1


# --- what an unfinished creator left --------------------------------------------------------------


def test_a_missing_or_unfinished_segment_is_none(slab_name: str, path: Path, geometry: Geometry) -> None:
    """Its creator has died before the first store, before the second, or before the last."""
    assert Segment.open(slab_name) is None
    path.touch(0o600)
    for length in (0, 8, 24, 512, 4096):
        path.write_bytes(bytes(length))
        assert Segment.open(slab_name) is None
    path.unlink()
    segment = Segment.create(slab_name, geometry, digest=77)
    assert Segment.open(slab_name) is None
    segment.words[Super.ABI] = 0
    assert Segment.open(slab_name) is None
    segment.close()


def test_what_an_unfinished_creator_left_is_replaced(segment: Segment, slab_name: str, geometry: Geometry) -> None:
    segment.words[Super.READY] = 0
    Path(names.PrivateNames.of(slab_name, segment.words).doorbell_path()).touch(0o600)
    slab = attach(slab_name, geometry, digest=5)
    assert slab.words[Super.DIGEST] == 5
    assert segment.words[Super.DIGEST] == 77
    detach(slab)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"This is somebody's letter, and nothing else. " * 100, "is not a slab"), (b"letter", "6 bytes long, too short")],
)
def test_a_foreign_file_is_refused_and_kept(
    slab_name: str, path: Path, geometry: Geometry, content: bytes, said: str
) -> None:
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(SlabAbiError, match=said):
        Segment.open(slab_name)
    with pytest.raises(SlabAbiError, match=said):
        attach(slab_name, geometry)
    assert path.read_bytes() == content
    assert not os.path.exists(names.lock_path(slab_name))


def test_a_truncated_segment_is_refused(segment: Segment, slab_name: str, path: Path) -> None:
    for missing in (1, 64, 4096):
        os.truncate(path, segment.geometry.total_size - missing)
        with pytest.raises(SlabAbiError, match="damaged"):
            Segment.open(slab_name)


@pytest.mark.usefixtures("segment")
def test_another_version_is_refused(slab_name: str) -> None:
    for version in (0, ABI_VERSION + 1, 2**64 - 1):
        overwrite(slab_name, Super.ABI, version)
        with pytest.raises(SlabAbiError, match=f"ABI version {version}, this package has version {ABI_VERSION}"):
            Segment.open(slab_name)


SIZES = (
    *(Super.TOTAL_SIZE, Super.SLOT_SIZE, Super.SLOT_COUNT),
    *(Super.MAX_PROCESSES, Super.MAX_TOPICS, Super.MAX_PARTITIONS),
)


@pytest.mark.usefixtures("segment")
@pytest.mark.parametrize("word", SIZES)
def test_damaged_sizes_are_refused(slab_name: str, word: int) -> None:
    for value in (0, 1 << 20, 2**64 - 1):
        overwrite(slab_name, word, value)
        with pytest.raises(SlabAbiError, match="damaged"):
            Segment.open(slab_name)


@pytest.mark.usefixtures("segment")
def test_a_segment_open_to_other_users_is_refused(slab_name: str, path: Path) -> None:
    for mode in (0o640, 0o604, 0o666, 0o700 | 0o010):
        path.chmod(mode)
        with pytest.raises(SlabPermissionError, match="mode 0600"):
            Segment.open(slab_name)


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_a_special_file_is_refused_without_blocking(slab_name: str, path: Path, tmp_path: Path, kind: str) -> None:
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "directory":
        path.mkdir(0o700)
    else:
        os.mkfifo(path, 0o600)
    with pytest.raises(SlabPermissionError, match="regular file"):
        Segment.open(slab_name)
    if kind == "directory":
        path.rmdir()


# --- memory ---------------------------------------------------------------------------------------


def test_a_slab_larger_than_the_memory_there_is_is_refused_with_the_cure(slab_name: str) -> None:
    room = os.statvfs(names.SHM_DIRECTORY)
    needed = room.f_bavail * room.f_frsize + (1 << 30)
    slot_size = 1 << 20
    with pytest.raises(SlabMemoryError, match=r"MiB needed, .* MiB free") as error:
        attach(slab_name, Geometry(slot_size, needed // slot_size))
    assert "--shm-size" in str(error.value)
    assert "buffer.memory" in str(error.value)
    assert not any(map(os.path.exists, names.leftovers(slab_name)))


@pytest.mark.parametrize(
    ("cgroup", "limit"), [("0::/a/b", "a/memory.max"), ("5:memory:/a", "memory/a/memory.limit_in_bytes")]
)
def test_a_slab_above_the_memory_limit_of_the_cgroup_is_refused(
    slab_name: str, geometry: Geometry, cgroup: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / limit
    file.parent.mkdir(parents=True)
    (tmp_path / "own").write_text(f"{cgroup}\n")
    monkeypatch.setattr(procfs, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(procfs, "OWN_CGROUPS", str(tmp_path / "own"))
    file.write_text(f"{geometry.total_size - 1}\n")
    with pytest.raises(SlabMemoryError, match=r"the slab needs .* MiB, but the memory limit .* is .* MiB") as error:
        attach(slab_name, geometry)
    assert "buffer.memory" in str(error.value)
    assert not any(map(os.path.exists, names.leftovers(slab_name)))
    file.write_text(f"{geometry.total_size}\n")
    detach(attach(slab_name, geometry))


def create_with_limit(link: Connection, name: str, geometry: Geometry, limit: int, size: int) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(limit, (size, size))
    try:
        attach(name, geometry)
    except SlabMemoryError as error:
        return str(error)
    return "no error"


def test_memory_that_cannot_be_reserved_is_refused_with_the_cure(
    slab_name: str, geometry: Geometry, start: Start
) -> None:
    message = start(create_with_limit, slab_name, geometry, resource.RLIMIT_FSIZE, 4096).result()
    assert "File too large" in message
    assert "ulimit -f" in message
    assert not any(map(os.path.exists, names.leftovers(slab_name)))


def test_a_failed_mapping_does_not_remove_the_segment(slab_name: str, start: Start) -> None:
    geometry = Geometry(1 << 20, 256)
    slab = attach(slab_name, geometry)
    message = start(create_with_limit, slab_name, geometry, resource.RLIMIT_AS, 1 << 28).result()
    assert "cannot be mapped" in message
    assert "ulimit" in message
    assert os.path.exists(names.segment_path(slab_name))
    detach(slab)


# --- the resource tracker -------------------------------------------------------------------------


def test_no_resource_tracker_unlinks_the_segment_at_an_exit(slab_name: str, geometry: Geometry) -> None:
    script = f"""
import os
from shmaccum.shm.lifecycle import attach
from shmaccum.shm.segment import Segment
slab = attach({slab_name!r})
Segment.open({slab_name!r}).close()
slab.words[slab.geometry.waiters // 8] = 4711
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no children")
"""
    slab = attach(slab_name, geometry)
    run = run_python("-c", script)
    assert (run.stdout, run.stderr) == ("no children\n", "")
    assert os.path.exists(names.segment_path(slab_name))
    assert slab.words[geometry.waiters // WORD] == 4711
    detach(slab)


# --- a small /dev/shm, as containers have it ------------------------------------------------------


def attach_where_shm_has(size: str, geometry: Geometry, error: str = "SlabMemoryError") -> str:
    """Attach to a new slab where /dev/shm has this size; return the output and the remains."""
    return run_where_shm_has(
        size,
        f"""
import os
from shmaccum.errors import {error}
from shmaccum._core import Geometry
from shmaccum.shm.lifecycle import attach, detach
try:
    detach(attach("small", {geometry!r}))
except {error} as error:
    print(error)
print(os.listdir("/dev/shm"))
""",
    )


@pytest.mark.parametrize("spare_pages", [0, 3, 8])
def test_a_small_shm_is_refused_with_the_cure(geometry: Geometry, spare_pages: int) -> None:
    """Even where the segment fits, but not all its semaphores: the pool's, and of 8 processes."""
    said = attach_where_shm_has(f"{geometry.total_size + spare_pages * 4096}", geometry)
    assert "MiB needed" in said
    assert "--shm-size" in said
    assert said.endswith("[]\n")


@pytest.mark.parametrize("size", ["0", "1m"])
def test_a_shm_that_is_large_enough_or_without_limit_is_used(geometry: Geometry, size: str) -> None:
    assert attach_where_shm_has(size, geometry) == "[]\n"


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ("1m,nr_inodes=3", "SlabMemoryError", "inodes free of 3: remove files, or mount -o remount,nr_inodes="),
        ("1m,ro", "SlabPermissionError", "Read-only file system; mount a tmpfs at /dev/shm with mode 1777"),
    ],
)
def test_a_shm_that_takes_no_file_is_refused_with_the_cure(
    geometry: Geometry, options: str, error: str, says: str
) -> None:
    said = attach_where_shm_has(options, geometry, error)
    assert says in said
    assert said.endswith("[]\n")


FULL = """
import os, subprocess, sys
from shmaccum._core import Geometry
from shmaccum.shm.lifecycle import attach, detach
slab = attach("full", Geometry(64, 8, 4, 2, 2))
before = sorted(os.listdir("/dev/shm"))
room = os.statvfs("/dev/shm")
with open("/dev/shm/filler", "wb") as filler:
    os.posix_fallocate(filler.fileno(), 0, room.f_bavail * room.f_frsize)
newcomer = [sys.executable, "-c", "from shmaccum.shm.lifecycle import *; detach(attach('full'))"]
refused = subprocess.run(newcomer, capture_output=True, text=True)
print(refused.stderr.splitlines()[-1])
slab.pool.rebuild()
slab.words[slab.geometry.header(0)] = 1
slab.words[slab.geometry.header(0)] = 0
os.unlink("/dev/shm/filler")
print(sorted(os.listdir("/dev/shm")) == before)
print(subprocess.run(newcomer).returncode)
detach(slab)
print(os.listdir("/dev/shm"))
"""


def test_a_full_shm_refuses_new_processes_and_keeps_old_ones() -> None:
    """A user continues, since its slab is reserved; a new process is refused with the cure, and leaves nothing."""
    refused, *rest = run_where_shm_has("4m", FULL).splitlines()
    assert refused.startswith("shmaccum.errors.SlabMemoryError: cannot attach to slab 'full': ")
    assert "No space left" in refused
    assert "; 0 bytes are free in /dev/shm" in refused
    assert rest == ["True", "0", "[]"]
