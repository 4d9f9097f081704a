"""An archive brings the package to executors, by the command of docs/spark.md; an image is as one machine is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest
from processes import wait_until
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
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
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
    return inherited | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"} | variables


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


class Cluster(NamedTuple):
    """A standalone cluster, and the directory in which its executors have theirs."""

    master: str
    work: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    options = f"{jvm_options()} -Dspark.master.rest.enabled=false -Dspark.master.ui.port=0"
    variables = environment(SPARK_DAEMON_JAVA_OPTS=options, SPARK_DAEMON_MEMORY="256m")

    def start(name: str, *arguments: str | Path, says: str) -> str:
        log = directory / f"{name}.log"
        command = [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name.lower()}.{name}"]
        with log.open("w") as file:
            daemon = subprocess.Popen([*command, *arguments], cwd=directory, env=variables, stdout=file, stderr=file)
        processes.callback(daemon.wait, 60)
        processes.callback(daemon.terminate)
        wait_until(lambda: daemon.poll() is not None or re.search(says, log.read_text()))
        found = re.search(says, log.read_text())
        assert found is not None, log.read_text()
        return found[0]

    loopback = ("--host", "127.0.0.1", "--port", "0")
    with ExitStack() as processes:
        master = start("Master", *loopback, says=r"spark://127\.0\.0\.1:\d+")
        place = ("--work-dir", directory / "work", "--webui-port", "0", "--cores", "2", "--memory", "1g")
        start("Worker", *loopback, *place, master, says="Successfully registered with master")
        yield Cluster(master, directory / "work")


def test_executors_have_an_archive_and_the_driver_its_own_environment(
    tmp_path: Path, cluster: Cluster, archive: Path, installed: str, until_gone: Callable[..., None]
) -> None:
    """Two executors, whose workers share one slab and one sender; neither they nor the driver have pandas.

    Spark plans on the driver, where the archive is not: with PYSPARK_PYTHON it cannot.
    """
    settings = SETTINGS | {"spark.local.dir": str(tmp_path / "scratch"), "spark.master": cluster.master}
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
        [HOME / "bin" / "spark-submit", "--archives", f"{archive}#environment", *configured, JOB, tmp_path / "log"],
        cwd=tmp_path,
        env=environment(**pythons),
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
    assert all(Path(directory).is_relative_to(cluster.work) for directory in directories)
    for task in found["tasks"]:
        assert task["directory"] in directories
        assert Path(task["package"]).is_relative_to(f"{task['directory']}/environment")
        assert task["is producer"]
        assert (task["sender"], task["sender starts"]) == (found["sender"], 1)
    assert {task["directory"] for task in found["tasks"]} == directories
    assert found["sender's python"] in {f"{directory}/environment/bin/python" for directory in directories}
    assert found["driver's package"] == installed
