"""What an installation has: both packages, in every form in which they are built."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
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
