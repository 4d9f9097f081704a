"""``shmaccum doctor``: what a slab needs of its host."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from subprocess import run

import pytest
from producers import wait_until_gone
from slab_helpers import run_where_shm_has

from shmaccum import Producer, procfs
from shmaccum.cli import doctor
from shmaccum.cli.doctor import Finding, Level
from shmaccum.config import ProducerConfig
from shmaccum.shm import names

NAME = f"doctor{os.getpid()}"


def findings(subject: str, **settings: object) -> list[Finding]:
    """Return what is found of one subject for a slab `NAME`, with some settings changed; ``_`` stands for ``.``."""
    given = {"bootstrap.servers": "localhost:9092", "shmaccum.name": NAME}
    config = ProducerConfig.parse(given | {name.replace("_", "."): value for name, value in settings.items()})
    return [each for each in doctor.host_findings(config) if each.subject == subject]


def test_a_host_with_room() -> None:
    (memory,) = findings("memory")
    assert (memory.level, memory.advice) == (Level.OK, "")
    assert "54.0 MiB for a slab with these settings" in memory.text


def test_a_slab_larger_than_shm() -> None:
    room = os.statvfs(names.SHM_DIRECTORY)
    (memory,) = findings("memory", buffer_memory=2 * room.f_bavail * room.f_frsize)
    assert memory.level == Level.PROBLEM
    assert "GiB free" in memory.text or "MiB free" in memory.text
    assert "docker run --shm-size" in memory.advice


@pytest.mark.parametrize(("mode", "text"), [(0o1777, "slab"), (0o777, "no sticky bit"), (0o1755, "")])
def test_who_may_write_to_shm(tmp_path: Path, mode: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "SHM_DIRECTORY", str(tmp_path))
    tmp_path.chmod(mode)
    monkeypatch.setattr(os, "access", lambda *_: bool(mode & 0o002))
    found = findings("memory")[0]
    assert text in found.text
    right = mode == 0o1777
    assert (found.level, found.advice) == ((Level.OK, "") if right else (Level.PROBLEM, f"chmod 1777 {tmp_path}"))


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
    (found,) = findings("memory")
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
    own = tmp_path / "cgroup"
    own.write_text(f"{cgroup}\n")
    monkeypatch.setattr(procfs, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(procfs, "OWN_CGROUPS", str(own))
    for mib, level in ((1, Level.PROBLEM), (60, Level.WARNING), (128, Level.OK)):
        (tmp_path / file).write_text(f"{mib << 20}\n")
        found = findings("memory")[-1]
        assert found.level == level
        assert (f"the cgroup may use {mib}.0 MiB" in found.text) == (level != Level.OK)


def test_a_slab_of_other_settings(slab_name: str, tmp_path: Path) -> None:
    settings = {"transport": "log", "log.dir": str(tmp_path), "shmaccum.name": slab_name, "sender.idle.ms": 50}
    with Producer(settings):
        assert not list(doctor.settings_findings(ProducerConfig.parse(settings)))
        (found,) = doctor.settings_findings(ProducerConfig.parse(settings | {"flush.ms": 7}))
        assert found.level == Level.PROBLEM
        assert "flush.ms is 9223372036854775807 there and 7 here" in found.text
    wait_until_gone(slab_name)
    assert not list(doctor.settings_findings(ProducerConfig.parse(settings)))


def test_limits() -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    command = [sys.executable, "-m", "shmaccum", "doctor"]
    ended = run(command, preexec_fn=lower, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    assert "warning  limits       100 descriptors, where 256 are needed" in ended.stdout
    assert "problem  limits       1,048,576 bytes in a file" in ended.stdout
    assert ended.stdout.count("raise ulimit -") == 2


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
    (found,) = findings("RemoveIPC")
    assert (found.level == Level.WARNING) == removes
    assert ("loginctl enable-linger 54321" in found.advice) == removes
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / "54321").touch()
    assert findings("RemoveIPC")[0].level == Level.OK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_another_user_has_the_slabs_name() -> None:
    path = Path(names.segment_path(NAME))
    path.touch(mode=0o600)
    os.chown(path, 12345, 12345)
    pid = os.fork()
    if not pid:
        os.setuid(65534)
        (found,) = findings("memory")
        os._exit(0 if (found.level, "user id 12345" in found.text) == (Level.PROBLEM, True) else 1)
    _, status = os.waitpid(pid, 0)
    path.unlink()
    assert status == 0


def test_every_shards_log_is_named(tmp_path: Path) -> None:
    assert [Path(each.text.split()[-1]).name for each in findings("log", shmaccum_shards=2)] == [
        f"{NAME}@0.log",
        f"{NAME}@1.log",
    ]
    (found,) = findings("log", shmaccum_shards=2, sender_log_file=tmp_path / "log")
    assert found.text == f"senders log to {tmp_path / 'log'}"


def test_the_senders_log_cannot_be_written(tmp_path: Path) -> None:
    assert findings("log")[0].level == Level.OK
    (tmp_path / "file").touch()
    for name, reason in (
        (f"{tmp_path}/new.log", None),
        ("none", None),
        (f"{tmp_path}/file/sender.log", f"{tmp_path}/file"),
        (f"{tmp_path}", "it is no regular file"),
        (f"{tmp_path}/missing/sender.log", f"there is no directory {tmp_path}/mis"),
    ):
        (found,) = findings("log", sender_log_file=name)
        assert found.level == (Level.PROBLEM if reason else Level.OK)
        assert reason is None or reason in found.text
