"""How many cores a process can use: of its affinity, and of the quotas of its cgroups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from shmaccum import procfs


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        ("0::/", {}, 64),
        ("0::/pod/c", {"pod/c/cpu.max": "max 100000"}, 64),
        ("0::/pod/c", {"pod/cpu.max": "1600000 100000", "pod/c/cpu.max": "2400000 100000"}, 16),
        ("0::/pod/c", {"pod/c/cpu.max": "150000 100000"}, 1),
        ("0::/pod/c", {"pod/c/cpu.max": "50000 100000"}, 1),
        ("0::/pod/c", {"pod/c/cpu.max": "12800000 100000"}, 64),
        ("0::/pod/c", {"pod/c/cpu.max": "nonsense"}, 64),
        ("0::/pod/c", {"pod/c/cpu.max": "1 0"}, 64),
        ("4:cpu,x:/c", {"cpu,x/c/cpu.cfs_quota_us": "800000", "cpu,x/c/cpu.cfs_period_us": "100000"}, 8),
        ("4:cpu,x:/c", {"cpu,x/c/cpu.cfs_quota_us": "-1", "cpu,x/c/cpu.cfs_period_us": "100000"}, 64),
        ("nonsense", {}, 64),
    ],
)
def test_usable_cores(
    cgroup: str, files: Mapping[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(f"{cgroup}\n")
    monkeypatch.setattr(procfs, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(procfs, "OWN_CGROUPS", str(tmp_path / "own"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))

    assert procfs.usable_cores() == cores
