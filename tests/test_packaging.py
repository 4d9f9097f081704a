"""What an installation has: both packages, in every form in which they are built; and what needs a compiler.

setuptools builds without pip, which would start three programs for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import ROOT, run_python

PACKAGES = ("shmaccum", "pyspark_shmaccum")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what packages are built from: building writes beside it."""
    copy = tmp_path_factory.mktemp("source")
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return copy


def build(source: Path, form: str) -> Path:
    """Return what setuptools builds, without compiling: ``form`` is sdist, wheel or editable."""
    program = f"import setuptools.build_meta as backend; print(backend.build_{form}('out'))"
    (source / "out").mkdir(exist_ok=True)
    done = run_python("-P", "-c", program, cwd=source, env=os.environ | {"SHMACCUM_PURE": "1"})
    assert done.returncode == 0, done.stderr
    return source / "out" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built_wheel(source: Path) -> Path:
    return build(source, "wheel")


def test_what_is_built_has_the_package_that_spark_finds(source: Path, built_wheel: Path) -> None:
    with tarfile.open(build(source, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"{name}/__init__.py" for name in PACKAGES} <= names
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "shmaccum" / "core").iterdir()} <= names
    with zipfile.ZipFile(built_wheel) as wheel:
        assert {f"{name}/__init__.py" for name in PACKAGES} <= set(wheel.namelist())


def test_an_editable_install_puts_it_where_spark_looks(source: Path) -> None:
    """Spark goes by pkgutil.iter_modules, which sees directories of the path and no import hooks."""
    with zipfile.ZipFile(build(source, "editable")) as wheel:
        paths = [wheel.read(name).decode().split() for name in wheel.namelist() if name.endswith(".pth")]
    assert paths == [[str(source)]]


def test_no_kafka_client_is_required(built_wheel: Path) -> None:
    """A program can have any version of kafka-python beside us, or none."""
    with zipfile.ZipFile(built_wheel) as wheel:
        (metadata,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert required
    assert not [line for line in required if "kafka" in line]


# --- with and without a C compiler, by the project's own setup.py over a small core -------------------

PYPROJECT = """\
[build-system]
requires = ["setuptools", "Cython"]
build-backend = "setuptools.build_meta"
[project]
name = "shmaccum"
version = "1"
[tool.setuptools]
packages = ["shmaccum"]
"""

Wheel = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "project" / "shmaccum"
    (package / "core").mkdir(parents=True)
    shutil.copy(ROOT / "setup.py", package.parent)
    (package.parent / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").touch()
    (package / "core" / "_core.pyx").write_text("def f(x):\n    return x\n")
    for header in ("atomics.h", "crc32c.h"):
        (package / "core" / header).touch()
    return package.parent


@pytest.fixture
def wheel(project: Path) -> Wheel:
    """Return a function that builds the wheel with variables in the environment."""

    def build(**variables: str) -> subprocess.CompletedProcess[str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith("SHMACCUM_")}
        hidden = "import sys; sys.modules['ziglang'] = None"  # the environment that makes wheels has it
        program = f"{hidden}; import setuptools.build_meta as backend; backend.build_wheel('.')"
        return run_python("-c", program, cwd=project, env=others | variables)

    return build


def built(project: Path) -> str:
    (found,) = project.glob("*.whl")
    return found.name


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_wheel_is_of_one_platform(project: Path, wheel: Wheel) -> None:
    done = wheel()
    assert done.returncode == 0, done.stderr
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in built(project)
    assert "linux" in built(project)


def test_without_a_compiler_the_error_says_what_to_install(project: Path, wheel: Wheel) -> None:
    done = wheel(CC="/nonexistent/cc")
    assert done.returncode != 0
    assert "there is no C compiler (/nonexistent/cc)" in done.stdout + done.stderr
    assert "pip install ziglang" in done.stdout + done.stderr
    assert not list(project.glob("*.whl"))


@pytest.mark.parametrize(("compiler", "needed"), [("/nonexistent/cc", ["ziglang"]), (sys.executable, [])])
def test_a_build_asks_for_a_compiler_only_where_there_is_none(project: Path, compiler: str, needed: list[str]) -> None:
    hooks = "get_requires_for_build_wheel", "get_requires_for_build_editable"
    program = f"import backend; print([getattr(backend, hook)() for hook in {hooks}])"
    where = {"PYTHONPATH": str(ROOT / "tools" / "packaging"), "CC": compiler}
    done = run_python("-c", program, cwd=project, env=os.environ | where)
    assert done.stdout.splitlines()[-1:] == [str([needed] * len(hooks))], done.stderr
