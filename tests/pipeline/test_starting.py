"""How a job starts: Spark's JVM, and the lock of the tables. No session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from groupkeeper.pipeline import run
from groupkeeper.pipeline.spark.launch import STDERR, SparkNotStarted, start
from groupkeeper.pipeline.tables.lake_lock import only_writer


def says(text: str) -> None:
    os.write(STDERR, text.encode())


def test_a_jvm_that_ends_at_once_is_told_by_what_it_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def make() -> None:
        says("Invalid maximum heap size: -Xmxlots\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    with pytest.raises(SparkNotStarted, match="Invalid maximum heap size"):
        start(make, passes_on=True)
    assert capfd.readouterr().err == ""


def test_what_a_jvm_says_while_it_starts_is_kept_back_or_passed_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    start(lambda: says("WARN noise\n"), passes_on=False)
    says("of our own\n")
    assert capfd.readouterr().err == "of our own\n"


def test_the_job_under_spark_submit_ends_with_a_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = str(tmp_path / "tables")
    with only_writer(tables):
        assert run.main(["--log-dir", str(tmp_path), "--out", tables]) == run.BUSY
    assert "another job writes these tables" in capsys.readouterr().err
