"""An archive brings the package to executors, by the command of docs/spark.md; an image is as one machine is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from runs import run_python
from spark_writes import stored

import pyspark_shmaccum
import shmaccum
from shmaccum.spark.session import TASKS
from tools.spark_jvm import jvm_options

HOME = Path(pyspark.__file__).parent
JOB = Path(__file__).parent / "deployed_job.py"
ROWS = 1000

ARCHIVED = "./environment/bin/python"
SETTINGS = {
    "spark.master": "local-cluster[2,1,512]",  # two executors, in processes of their own as in any cluster
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before all executors are there
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": jvm_options(),
    "spark.executor.memory": "512m",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
}

PATIENCE_S = 500.0

pytestmark = pytest.mark.timeout(600)


def environment(**variables: str) -> dict[str, str]:
    """Return an environment for Spark's programs in which nothing of this one leads to a Python or a package."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    return inherited | {"SPARK_LOCAL_IP": "127.0.0.1"} | variables


@pytest.fixture(scope="module")
def installed() -> str:
    """Return where the package is that this interpreter has installed, which need not be the one that is tested."""
    return run_python(
        "-c", "import shmaccum; print(shmaccum.__file__)", cwd=Path("/"), env=environment()
    ).stdout.strip()


def without_pandas(directory: Path) -> None:
    """Hide pandas, which a job needs not: pyspark warns of one that is newer than itself."""
    (directory / "pandas.py").write_text("raise ModuleNotFoundError('not installed', name='pandas')\n")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what venv-pack makes of an environment with this package.

    What that needs is large, and is only referred to.
    """
    directory = tmp_path_factory.mktemp("packed")
    prefix = directory / "prefix"
    venv.create(prefix, symlinks=True)
    (site,) = prefix.glob("lib/python*/site-packages")
    for package in (shmaccum, pyspark_shmaccum):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, site / source.name)
    needed = [entry for entry in sys.path if Path(entry).name == "site-packages"]
    (site / "needed.pth").write_text(f"import sys; sys.path.extend({needed!r})\n")
    without_pandas(site)
    packed = directory / "environment.tar.gz"
    command = [sys.executable, "-m", "venv_pack", "--prefix", prefix, "--output", packed, "--quiet"]
    subprocess.run(command, check=True, timeout=120)
    shutil.rmtree(prefix)
    return packed


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Return a home of Spark whose directory ``work``, where executors have theirs, is the test's own."""
    home = tmp_path / "home"
    home.mkdir()
    for entry in HOME.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


def test_executors_have_an_archive_and_the_driver_its_own_environment(
    tmp_path: Path, spark_home: Path, archive: Path, installed: str, until_gone: Callable[..., None]
) -> None:
    """Two executors, whose workers share one slab and one sender; neither they nor the driver have pandas.

    Spark plans on the driver, where the archive is not: with PYSPARK_PYTHON it cannot.
    """
    settings = SETTINGS | {"spark.local.dir": str(tmp_path / "scratch")}
    settings[TASKS] = ARCHIVED
    configured = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    (tmp_path / "path").mkdir()
    without_pandas(tmp_path / "path")
    pythons = {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": ARCHIVED,
        "PYTHONPATH": str(tmp_path / "path"),
    }
    ended = subprocess.run(
        [
            spark_home / "bin" / "spark-submit",
            "--archives",
            f"{archive}#environment",
            *configured,
            JOB,
            tmp_path / "log",
        ],
        cwd=tmp_path,
        env=environment(SPARK_HOME=str(spark_home), **pythons),
        stdout=subprocess.PIPE,  # with what the job says on standard error
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    until_gone(found["slab"], found["sender"])
    for topic in ("written", "registered", "sent"):
        assert sorted(int(record.value) for record in stored(tmp_path / "log", topic)) == list(range(ROWS))
    assert sorted(record.value for record in stored(tmp_path / "log", "streamed")) == [b"a", b"b"]
    assert {writer["python"] for writer in found["writers"]} == {ARCHIVED}
    directories = {writer["directory"] for writer in found["writers"]}
    assert len(directories) == 2
    assert all(Path(directory).is_relative_to(spark_home / "work") for directory in directories)
    for task in found["tasks"]:
        assert task["directory"] in directories
        assert Path(task["package"]).is_relative_to(f"{task['directory']}/environment")
        assert task["is producer"]
        assert (task["sender"], task["sender starts"]) == (found["sender"], 1)
    assert {task["directory"] for task in found["tasks"]} == directories
    assert found["sender's python"] in {f"{directory}/environment/bin/python" for directory in directories}
    assert found["driver's package"] == installed
