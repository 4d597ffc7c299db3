"""Segments and tables in an object store, through Hadoop's S3A."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.helpers.clients.ecosystem import Unavailable
from tests.pipeline.conftest import Site, a_site
from tests.pipeline.elsewhere.bucket import Bucket, jars
from tests.pipeline.elsewhere.commands import differences, options


@pytest.fixture
def bucket(tmp_path) -> Iterator[Bucket]:
    try:
        jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    with Bucket(tmp_path) as bucket:
        yield bucket


@pytest.fixture
def before(here, tmp_path) -> Site:
    """The same history without its last segment, with the tables that this machine makes of it."""
    site = a_site(here.spark, tmp_path / "before")
    shutil.copytree(here.log_dir, site.log_dir, dirs_exist_ok=True)
    *_, last = sorted(site.log_dir.glob("dt=*/events-*"))
    last.unlink()
    manifest = site.log_dir / "_manifest.jsonl"
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[:-1]))
    assert len(site.run().published) == 2
    return site


def run_of(bucket: Bucket) -> str:
    """Do what a user does, and return what the command says."""
    command = [sys.executable, "-m", "groupkeeper", "pipeline", "run"]
    command += ["--log-dir", f"{bucket.ADDRESS}/log", "--out", f"{bucket.ADDRESS}/tables"]
    command += options(bucket.settings())
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_tables_in_an_object_store_grow_to_those_of_this_machine(here, before, bucket, tmp_path):
    """The first tables come from this machine. So the run reads them, adds its files to theirs,
    and replaces the pointer.
    """
    bucket.put(here.log_dir, "log")
    bucket.put(before.lake.root, "tables")
    assert "published 2023-11-16, from" in run_of(bucket)
    bucket.get("tables", tmp_path / "tables")
    assert differences(here, before.lake.root) != []
    assert differences(here, tmp_path / "tables") == []
    deltas = list((tmp_path / "tables" / "silver" / "commit_deltas").glob("dt=*-16/v=2/*.parquet"))
    assert len(deltas) > 1, "the day has grown, and was not made anew"
