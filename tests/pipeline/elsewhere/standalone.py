"""Spark's own cluster: a master and two workers on this machine."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from pyspark.find_spark_home import _find_spark_home

from tests.pipeline.elsewhere.process import started

SPARK: Final = Path(_find_spark_home())
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""It lives for a minute: the quick compiler alone."""


class Standalone:
    """A cluster of the jars that PySpark has."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.url = ""
        self._workers = workers
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            master = "org.apache.spark.deploy.master.Master"
            where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            self.url = self._started("master", [master, *where], r"at (spark://\S+\d)")
            worker = ["org.apache.spark.deploy.worker.Worker", *where, "-c", "1", "-m", "1g"]
            for number in range(self._workers):
                place = ["-d", str(self.work_of(number)), self.url]
                self._started(f"worker-{number}", [*worker, *place], "Successfully (registered)")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def work_of(self, number: int) -> Path:
        """Return the folder in which a worker keeps what its executors write."""
        return self.folder / f"work-{number}"

    def executors_of(self, number: int) -> list[Path]:
        """Return the folders of the executors that a worker has started."""
        return list(self.work_of(number).glob("app-*/*"))

    def _started(self, name: str, command: list[str], says: str) -> str:
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        }
        spark_class = str(SPARK / "bin" / "spark-class")
        log = self.folder / f"{name}.log"
        return started(self._stack, log, [spark_class, *command], environment, says)
