"""One Spark session for the whole run, and folders of sealed segments to feed it."""

from __future__ import annotations

import gc
import importlib.util
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from groupkeeper.pipeline.log.segment_files import Lacking
    from groupkeeper.pipeline.tables.lake import Lake
    from groupkeeper.pipeline.tables.publish import Publication

if importlib.util.find_spec("pyspark") is None:
    # `make test` needs nothing but Python; `make test-pipeline` brings Spark
    collect_ignore_glob = ["test_*.py"]
elif importlib.util.find_spec("deltalake") is None:
    collect_ignore = ["test_export.py"]  # of the extra `export`, which that target brings too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever stands here starts Spark. What is not marked as long is in `make test-pipeline`. The
    files that take longest come first, or one of two workers would wait for the other.
    """
    for item in items:
        is_long = item.get_closest_marker("spark_long") is not None
        if Path(__file__).parent in item.path.parents and not is_long:
            item.add_marker("spark")
    items.sort(key=lambda item: -SECONDS.get(item.path.name, 0))


# On two cores; files that take less are not here. `pytest --durations=0` says what tests take.
SECONDS = {
    "test_hours.py": 120,
    "test_newcomers_steps.py": 90,
    "test_growth.py": 80,
    "test_publish.py": 70,
    "test_versions.py": 70,
    "test_cluster.py": 65,
    "test_object_store.py": 60,
    "test_verify.py": 50,
    "test_maintenance.py": 50,
    "test_reports.py": 45,
    "test_log_source.py": 25,
    "test_tail.py": 25,
    "test_landed_retention.py": 25,
    "test_hard_days.py": 35,
    "test_ledger.py": 35,
    "test_history.py": 30,
    "test_ingest.py": 25,
    "test_true_lag.py": 25,
    "test_data_ends.py": 20,
    "test_run_by_url.py": 30,
    "test_incidents.py": 15,
}


SMALL = "spark.groupkeeper.small"
JVM_OPTIONS = "spark.driver.extraJavaOptions"
SMALL_DATA = {
    # compiling code, Spark's and the JVM's, costs more than running it once; what is compiled of
    # this run fills the 48 MB that are usual, was thrown out and compiled again
    JVM_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    SMALL: "true",
    # two, for rows that belong together are not to be together by chance; not one task more
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "1",
    # where in Python a column was made, asked of the JVM for each one
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # the stack of the JVM for each column, for messages of errors; a check of Spark's own rules
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    # what the pages that nobody looks at would show
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    "spark.sql.ui.retainedExecutions": "1",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session, with settings for small data. The commands ask for theirs in this process
    and get this one, which they would set up for large data again."""
    from groupkeeper.pipeline.spark import session as jobs

    # it lives for all tests: with room for new objects, they are seldom searched
    options = f"{SMALL_DATA[JVM_OPTIONS]} -Xmn400m"
    with pytest.MonkeyPatch.context() as patch:
        ours = jobs.our_settings
        patch.setattr(jobs, "our_settings", lambda **of: {**ours(**of), **SMALL_DATA})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # py4j's, while it starts the JVM
            session = jobs.spark_session(
                "tests",
                master="local[2]",
                driver_memory="1g",
                settings={**SMALL_DATA, JVM_OPTIONS: options},
            )
        yield session
        session.stop()
    gc.collect()


@contextmanager
def as_for_large_data(spark: SparkSession) -> Iterator[None]:
    """Inside the block Spark writes all tables and shuffles their rows, as for large data."""
    large = {SMALL: "false", "spark.sql.shuffle.partitions": "2"}
    before = {key: spark.conf.get(key) for key in large}
    for key, value in large.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            assert value is not None
            spark.conf.set(key, value)


@dataclass
class Site:
    """A folder of segments, and the lake that is made of it."""

    spark: SparkSession
    log_dir: Path
    lake: Lake

    def copied_to(self, folder: Path) -> Site:
        """Return a copy of all that is there, to be changed."""
        shutil.copytree(self.log_dir, folder / "log")
        shutil.copytree(self.lake.root, folder / "lake")
        return Site(self.spark, folder / "log", type(self.lake)(str(folder / "lake")))

    def seal(self, events: Iterable[dict], segment_events: int = 10**9) -> list[Path]:
        """Write events, each log's in order, as sealed segments of so many events."""
        from groupkeeper.storage.event_log.sealing.segment_writer import write_segments

        sealed = []
        held = list(events)
        for start in range(0, len(held), segment_events):
            sealed += write_segments(self.log_dir, held[start : start + segment_events])
        return [self.log_dir / segment.file for segment in sealed]

    def ingest(self) -> list[Lacking]:
        from groupkeeper.pipeline.tables.ingest import ingest

        return ingest(self.spark, str(self.log_dir), self.lake)

    def run(self, **options) -> Publication:
        """Do what `groupkeeper pipeline run` does."""
        from groupkeeper.pipeline.tables.publish import publish

        self.ingest()
        return publish(self.spark, self.lake, **options)

    def gold(self, table: str) -> list[dict]:
        """Every valid row of a table, as one order has them."""
        return self._rows(f"gold/{table}")

    def silver(self, table: str) -> list[dict]:
        return self._rows(f"silver/{table}")

    def _rows(self, table: str) -> list[dict]:
        """Without Spark, which would need most of a test's time for it."""
        from groupkeeper.pipeline.tables.versions import read_pointer

        folders = read_pointer(self.spark, self.lake).folders(table)
        found = (row for day, folder in folders.items() for row in self._rows_in(folder, day))
        return sorted(found, key=repr)

    def _rows_in(self, folder: str, day: date) -> Iterator[dict]:
        import pyarrow.parquet as pq

        for file in Path(self.lake.root, folder).glob("[!._]*.parquet"):
            with pq.ParquetFile(file) as content:
                rows = content.read().to_pylist(maps_as_pydicts="strict")
            yield from (row | {"dt": day} for row in rows)

    def valid(self, table: str) -> DataFrame | None:
        """Read what is valid of a table, with the columns that its files have."""
        from pyspark.sql import DataFrame

        from groupkeeper.pipeline.tables.pointer import has_version
        from groupkeeper.pipeline.tables.versions import read_pointer

        folders = read_pointer(self.spark, self.lake).folders(table).values()
        reader = self.spark.read.option("basePath", self.lake.path(table))
        new = [self.lake.path(folder) for folder in folders if has_version(folder)]
        old = [
            self.lake.path(f"{folder}/*.parquet") for folder in folders if not has_version(folder)
        ]
        parts = [reader.parquet(*paths).drop("v") for paths in (new, old) if paths]
        return reduce(DataFrame.unionByName, parts) if parts else None


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Site:
    """Return an empty one."""
    return a_site(spark, tmp_path)


def a_site(spark: SparkSession, folder: Path) -> Site:
    from groupkeeper.pipeline.tables.lake import Lake

    (folder / "log").mkdir(parents=True)
    return Site(spark, folder / "log", Lake(str(folder / "lake")))
