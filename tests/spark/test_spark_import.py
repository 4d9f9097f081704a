from __future__ import annotations

import tomllib
from pathlib import Path

from runs import ROOT, run_python

OLD_PYSPARK = "import sys; sys.path.insert(0, {directory!r})"
WITHOUT = "import sys; sys.modules[{name!r}] = None"


def import_error(program: str) -> str:
    """Import the package in an interpreter of its own, prepared by a program; return the last line of the error."""
    result = run_python("-c", f"{program}; import shmaccum.spark")
    assert result.returncode == 1
    return result.stderr.splitlines()[-1]


def test_a_missing_pyspark_is_reported() -> None:
    error = import_error(WITHOUT.format(name="pyspark"))
    assert error.startswith("shmaccum.errors.ApiVersionError: shmaccum.spark needs pyspark 4.0 or later and pyarrow")
    assert error.endswith("pip install 'shmaccum[spark]'")


def test_the_package_that_spark_looks_for_can_always_be_imported() -> None:
    """Else no session would find any data source that is written in Python."""
    program = f"{WITHOUT.format(name='pyarrow')}; import pyspark_shmaccum as found; print(found.DefaultSource.name())"
    result = run_python("-c", f"{program}; found.DefaultSource({{}})")
    assert result.stdout == "shmaccum\n"
    assert "ApiVersionError: shmaccum.spark needs pyspark 4.0 or later and pyarrow" in result.stderr.splitlines()[-1]


def test_an_old_pyspark_is_refused(tmp_path: Path) -> None:
    sql = tmp_path / "pyspark" / "sql"
    sql.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    (sql / "__init__.py").touch()
    error = import_error(OLD_PYSPARK.format(directory=str(tmp_path)))
    assert "ApiVersionError: shmaccum.spark needs pyspark 4.0 or later" in error
    assert "No module named 'pyspark.sql.datasource'" in error


def test_a_stream_is_arrow_batches_with_pyspark_4_0_too() -> None:
    """Its workers give them to each writer of this class, and rows to others."""
    program = (
        "from pyspark.sql import datasource; vars(datasource).pop('DataSourceStreamArrowWriter', None);"
        "from shmaccum.spark.writers import StreamWriter;"
        "print(isinstance(StreamWriter(None), datasource.DataSourceArrowWriter))"
    )
    result = run_python("-c", program)
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr


def test_planning_a_job_imports_no_producer() -> None:
    """The driver does so in processes of its own, which are new after every pause."""
    program = (
        "import sys, pyspark_shmaccum, shmaccum.spark.writers;"
        "print(*sorted({'shmaccum.producer.producer', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    result = run_python("-c", program)
    assert (result.returncode, result.stdout) == (0, "\n")
    result = run_python("-c", "from shmaccum.spark import producer; print(producer.__module__)")
    assert (result.returncode, result.stdout) == (0, "shmaccum.spark.worker\n")


def test_the_extra_brings_no_pandas() -> None:
    """Jobs without it are in `test_deployments`."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not any(requirement.startswith("pandas") for requirement in extras["spark"])
