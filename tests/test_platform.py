"""What the package refuses to run on, and that it says why; and how many cores it takes a machine to have."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import PATIENCE_S
from producers import wait_until_gone
from runs import run_python

import shmaccum
from shmaccum import _platform, procfs
from shmaccum._core import OrderedWords
from shmaccum.observe.report import report
from shmaccum.shm import segment

WITHOUT_GIL = "import sys; sys._is_gil_enabled = lambda: False; "


def test_an_import_without_the_gil_is_refused_and_says_how_to_get_it() -> None:
    done = run_python("-c", WITHOUT_GIL + "import shmaccum")
    assert done.returncode == 1
    assert "UnsupportedPlatformError: shmaccum needs the GIL" in done.stderr
    assert "PYTHON_GIL=1" in done.stderr


def test_an_import_by_another_implementation_is_refused() -> None:
    done = run_python("-c", "import sys; sys.implementation.name = 'pypy'; import shmaccum")
    assert "UnsupportedPlatformError: shmaccum needs CPython, and this is pypy" in done.stderr


def test_programs_can_catch_the_refusal_as_an_import_error() -> None:
    program = "\ntry:\n    from shmaccum import Producer\nexcept ImportError:\n    print('without')"
    assert run_python("-c", WITHOUT_GIL + program).stdout == "without\n"


@pytest.mark.parametrize("sys_has", [{}, {"_is_gil_enabled": lambda: True}], ids=["before 3.13", "since"])
def test_an_interpreter_with_the_gil_is_not_refused(sys_has: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_platform, "sys", SimpleNamespace(version=sys.version, **sys_has))
    _platform.check_gil()


def test_an_import_without_the_core_says_what_to_do() -> None:
    program = "import sys; sys.modules['shmaccum._core'] = None; import shmaccum"
    done = run_python("-c", program)
    assert "UnsupportedPlatformError: shmaccum's compiled core is missing" in done.stderr
    assert "pip install -e ." in done.stderr


@pytest.mark.parametrize(
    ("core", "says"),
    [
        ("_core.cpython-310-x86_64-linux-gnu.so", "made for another Python: it is _core.cpython-310-.*loads _core"),
        (f"_core{EXTENSION_SUFFIXES[0]}", "there, but cannot be loaded .*too short"),
    ],
)
def test_an_import_with_a_core_that_does_not_fit_says_so(tmp_path: Path, core: str, says: str) -> None:
    package = Path(shmaccum.__file__).parent
    shutil.copytree(package, tmp_path / "shmaccum", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "shmaccum" / core).touch()
    done = run_python("-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import shmaccum")
    assert re.search(f"UnsupportedPlatformError: shmaccum's compiled core is {says}", done.stderr), done.stderr


def test_an_import_from_a_zip_archive_says_what_to_do(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "program"), "zip", Path(shmaccum.__file__).parents[1], "shmaccum")
    done = run_python("-c", f"import sys; sys.path.insert(0, {archive!r}); import shmaccum")
    assert "UnsupportedPlatformError: shmaccum's compiled core cannot be imported from a zip archive" in done.stderr
    assert "pip install" not in done.stderr


def test_an_import_in_a_subinterpreter_says_where_it_works() -> None:
    name = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
    program = f"import shmaccum, {name} as i; print(getattr(i, 'exec', i.run_string)(i.create(), 'import shmaccum'))"
    done = run_python("-c", program)
    assert "shmaccum runs in one interpreter of a process" in done.stdout + done.stderr
    assert "main interpreter alone" in done.stdout + done.stderr
    assert "pip install" not in done.stdout + done.stderr


def test_words_with_barriers_behave_like_a_memoryview() -> None:
    memory = bytearray(64)
    words: Any = OrderedWords(memoryview(memory).cast("Q"))
    words[3] = 7
    words[4:6] = memoryview(bytes([1] * 16)).cast("Q")
    assert (words[3], words[2:5].tolist(), len(words)) == (7, [0, 7, 0x0101010101010101], 8)
    assert memory[24] == 7
    with words[0:2].cast("B") as place:
        place[0] = 9
    assert memoryview(words)[0] == words[0] == words.cast("B")[0] == 9
    with pytest.raises(IndexError):
        words[8]
    shown = words.toreadonly()
    with pytest.raises(TypeError, match="read-only"):
        shown[3] = 8
    assert shown[3] == 7
    shown.release()
    words.release()
    with pytest.raises(ValueError, match="released"):
        words[3]


def test_a_slab_is_used_through_words_with_barriers(
    monkeypatch: pytest.MonkeyPatch, slab_name: str, tmp_path: Path
) -> None:
    """Another machine's kind of words has all that the package uses."""
    monkeypatch.setattr(segment, "keeps_order", lambda: False)
    settings = {"transport": "log", "log.dir": str(tmp_path), "shmaccum.name": slab_name, "sender.idle.ms": 100}
    with shmaccum.Producer(settings) as producer:
        producer.send("t", b"value").get(PATIENCE_S)
        assert report(slab_name).memory.waiting_threads == 0
        assert producer.metrics()
    wait_until_gone(slab_name)


# --- how many cores a process can use: by its affinity, and the quotas of its cgroups -----------------


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
