"""`spark-submit` of the wheel to a cluster whose workers have PySpark alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.pipeline.elsewhere.commands import differences, options
from tests.pipeline.elsewhere.standalone import QUICK_JVM, SPARK, Standalone

ROOT = Path(__file__).parents[3]


@pytest.fixture
def a_wheel(tmp_path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path / "wheel"), str(ROOT)]
    subprocess.run([*pip, *build], check=True, cwd=tmp_path)
    (wheel,) = (tmp_path / "wheel").glob("groupkeeper-*.whl")
    return wheel


@pytest.fixture
def bare_python(tmp_path) -> Path:
    """A Python with its standard library alone."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    return tmp_path / "bare" / "bin" / "python"


@pytest.fixture
def environment(bare_python) -> dict[str, str]:
    """What a submitted job has: the driver and the workers find PySpark, and no other package."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    return kept | {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(bare_python),
    }


def test_a_cluster_without_our_packages_makes_the_tables_that_this_machine_makes(
    here, a_wheel, environment, tmp_path
):
    job = Path(shutil.copy(ROOT / "pipeline" / "run.py", tmp_path))
    tables = tmp_path / "tables"
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.executor.memory": "512m",
    }
    (tmp_path / "cluster").mkdir()
    with Standalone(tmp_path / "cluster") as cluster:
        submit = [SPARK / "bin" / "spark-submit", "--master", cluster.url, "--py-files", a_wheel]
        done = subprocess.run(
            [*submit, *options(settings), job, "--log-dir", here.log_dir, "--out", tables],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "published 2 days" in done.stdout, done.stdout  # to which Spark sends both outputs
        assert all(cluster.executors_of(number) for number in range(2))
    assert differences(here, tables) == []
