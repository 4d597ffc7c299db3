"""Two jobs on one set of tables: the second is refused, and told who is at it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from groupkeeper.pipeline.tables.lake_lock import LOCK, TablesBusy, local_folder, only_writer

HOLDS = """
import sys, time
from groupkeeper.pipeline.tables.lake_lock import only_writer

with only_writer(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_refused_and_told_which_is_there(tmp_path: Path) -> None:
    tables = str(tmp_path / "tables")
    with (
        only_writer(tables),
        pytest.raises(TablesBusy, match=rf"process {os.getpid()}\)"),
        only_writer(f"file://{tables}"),
    ):
        pass
    with only_writer(tables):
        assert (tmp_path / "tables" / LOCK).exists()


def test_a_writer_that_is_killed_leaves_the_tables_to_the_next(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TablesBusy, match=f"process {holder.pid}"), only_writer(str(tmp_path)):
            pass
        holder.kill()
        holder.wait()
    with only_writer(str(tmp_path)):
        pass


def test_a_forked_child_does_not_keep_the_lock_of_a_job_that_has_ended(tmp_path: Path) -> None:
    waits, ends = os.pipe()
    with only_writer(str(tmp_path)):
        child = os.fork()
        if not child:
            os.close(ends)
            os.read(waits, 1)  # until the parent has seen the lock, or has ended
            os._exit(0)
    os.close(waits)
    try:
        with only_writer(str(tmp_path)):
            pass
    finally:
        os.close(ends)
        os.waitpid(child, 0)


def test_a_forked_child_does_not_release_the_lock_of_its_parent(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(only_writer(str(tmp_path)))
        child = os.fork()
        if not child:
            stack.close()  # as an error in the child would do
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(TablesBusy), only_writer(f"{tmp_path}/../{tmp_path.name}"):
            pass


@pytest.mark.parametrize(
    ("root", "folder"),
    [
        ("tables", Path("tables")),
        ("file:/srv/a%20b", Path("/srv/a b")),
        ("file:///srv/tables", Path("/srv/tables")),
        ("s3a://bucket/tables", None),
        ("hdfs:///tables", None),
    ],
)
def test_only_a_folder_of_this_machine_has_a_lock(root: str, folder: Path | None) -> None:
    assert local_folder(root) == folder
    if folder is None:
        with only_writer(root), only_writer(root):
            pass
