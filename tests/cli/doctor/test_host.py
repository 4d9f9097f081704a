"""``shmaccum doctor``: what a slab needs of its host."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from subprocess import run

import pytest
from slab_helpers import run_where_shm_has

from shmaccum import procfs
from shmaccum.cli import doctor
from shmaccum.cli.doctor import Finding, Level
from shmaccum.config import ProducerConfig
from shmaccum.shm import names


def config(**settings: object) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap.servers": "localhost:9092", **settings})


def findings(subject: str, config: ProducerConfig) -> list[Finding]:
    return [each for each in doctor.host_findings(config) if each.subject == subject]


def test_a_host_with_room() -> None:
    (memory,) = findings("memory", config(**{"shmaccum.name": f"doctor{os.getpid()}"}))
    assert (memory.level, memory.advice) == (Level.OK, "")
    assert "54.0 MiB for a slab with these settings" in memory.text


def test_a_slab_larger_than_shm() -> None:
    room = os.statvfs(names.SHM_DIRECTORY)
    size = 2 * room.f_bavail * room.f_frsize
    (memory,) = findings("memory", config(**{"buffer.memory": size, "shmaccum.name": f"doctor{os.getpid()}"}))
    assert memory.level == Level.PROBLEM
    assert "GiB free" in memory.text or "MiB free" in memory.text
    assert "docker run --shm-size" in memory.advice


@pytest.mark.parametrize(
    ("mode", "level", "text"), [(0o1777, Level.OK, "slab"), (0o777, Level.PROBLEM, "no sticky bit"), (0o1755, None, "")]
)
def test_who_may_write_to_shm(
    tmp_path: Path, mode: int, level: Level | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "SHM_DIRECTORY", str(tmp_path))
    tmp_path.chmod(mode)
    monkeypatch.setattr(os, "access", lambda *_: bool(tmp_path.stat().st_mode & 0o002))
    found = findings("memory", config(**{"shmaccum.name": f"doctor{os.getpid()}"}))[0]
    assert found.level == (level or Level.PROBLEM)
    assert text in found.text
    assert (found.advice == f"chmod 1777 {tmp_path}") == (found.level == Level.PROBLEM)


READ_ONLY = """
from shmaccum.cli.doctor import host_findings
from shmaccum.config import ProducerConfig

config = ProducerConfig.parse({"bootstrap.servers": "localhost:9092"})
(memory,) = [each for each in host_findings(config) if each.subject == "memory"]
print(memory.level.name, memory.text, memory.advice, sep="; ")
"""


def test_shm_is_read_only() -> None:
    assert run_where_shm_has("1m,ro", READ_ONLY) == (
        "PROBLEM; /dev/shm is mounted read-only; mount -o remount,rw /dev/shm\n"
    )


def test_there_is_no_shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "SHM_DIRECTORY", str(tmp_path / "shm"))
    (found,) = findings("memory", config())
    assert (found.level, found.advice) == (Level.PROBLEM, f"mount a tmpfs at {tmp_path / 'shm'}")


@pytest.mark.parametrize(
    ("cgroup", "file"), [("0::/a/b", "a/memory.max"), ("5:memory:/a", "memory/a/memory.limit_in_bytes")]
)
def test_the_container_may_use_less_memory(
    tmp_path: Path, cgroup: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a cgroup above counts, too; ``max`` is none."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("1048576\n")
    own = tmp_path / "cgroup"
    own.write_text(f"{cgroup}\n")
    monkeypatch.setattr(procfs, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(procfs, "OWN_CGROUPS", str(own))
    found = findings("memory", config(**{"shmaccum.name": f"doctor{os.getpid()}"}))[-1]
    assert found.level == Level.PROBLEM
    assert "the cgroup may use 1.0 MiB" in found.text


@pytest.mark.parametrize(
    ("kind", "limit", "says"),
    [
        (resource.RLIMIT_NOFILE, 100, "warning  limits       100 descriptors, where 256 are needed"),
        (resource.RLIMIT_FSIZE, 1 << 20, "problem  limits       1,048,576 bytes in a file"),
    ],
)
def test_limits(kind: int, limit: int, says: str) -> None:
    ended = run(
        [sys.executable, "-m", "shmaccum", "doctor"],
        preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    assert says in ended.stdout
    assert "raise ulimit -" in ended.stdout


@pytest.mark.parametrize(
    ("files", "removes"),
    [
        ({}, True),
        ({"logind.conf": "[Login]\n#RemoveIPC=yes\n"}, True),
        ({"logind.conf": "[Login]\nRemoveIPC=no\n"}, False),
        ({"logind.conf": "[Login]\nRemoveIPC=no\n", "logind.conf.d/10.conf": "[Login]\nRemoveIPC=yes\n"}, True),
        ({"logind.conf": "no section\n", "logind.conf.d/10.conf": "[Login]\nRemoveIPC=no\n"}, False),
    ],
)
def test_systemd_removes_slabs(
    tmp_path: Path, files: dict[str, str], removes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(doctor, "_LOGIND", tmp_path)
    monkeypatch.setattr(doctor, "_LOGIND_SETTINGS", (str(tmp_path / "logind.conf"),))
    monkeypatch.setattr(doctor, "_LINGER", tmp_path / "linger")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    (found,) = findings("RemoveIPC", config())
    assert (found.level == Level.WARNING) == removes
    assert ("loginctl enable-linger 54321" in found.advice) == removes
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / "54321").touch()
    assert findings("RemoveIPC", config())[0].level == Level.OK


def test_the_clock() -> None:
    (clock,) = findings("clock", config())
    assert clock.level in (Level.OK, Level.WARNING)
    assert bool(clock.advice) == (clock.level == Level.WARNING)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_another_user_has_the_slabs_name() -> None:
    name = f"doctor{os.getpid()}"
    path = Path(names.segment_path(name))
    path.touch(mode=0o600)
    os.chown(path, 12345, 12345)
    pid = os.fork()
    if not pid:
        os.setuid(65534)
        (found,) = findings("memory", config(**{"shmaccum.name": name}))
        os._exit(0 if (found.level, "user id 12345" in found.text) == (Level.PROBLEM, True) else 1)
    _, status = os.waitpid(pid, 0)
    path.unlink()
    assert status == 0


def test_the_senders_log_cannot_be_written(tmp_path: Path) -> None:
    (found,) = findings("log", config())
    assert found.level == Level.OK
    (tmp_path / "file").touch()
    (found,) = findings("log", config(**{"sender.log.file": f"{tmp_path}/file/sender.log"}))
    assert (found.level, f"{tmp_path}/file" in found.text) == (Level.PROBLEM, True)
    for name, reason in (
        ("", "it is no regular file"),
        ("missing/sender.log", f"there is no directory {tmp_path}/mis"),
    ):
        (found,) = findings("log", config(**{"sender.log.file": str(tmp_path / name)}))
        assert (found.level, reason in found.text) == (Level.PROBLEM, True)
    (found,) = findings("log", config(**{"sender.log.file": str(tmp_path / "new.log")}))
    assert found.level == Level.OK
    (found,) = findings("log", config(**{"sender.log.file": "none"}))
    assert found.level == Level.OK
