"""The archive of Java classes: who writes it, and when a JVM uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from groupkeeper.pipeline.spark import class_archive as module
from groupkeeper.pipeline.spark.class_archive import STARTS_BEFORE, ClassArchive, usual_archive
from tests.pipeline.restore.conftest import command

HOUR_S = 3600


def named(options: str) -> Path:
    """The file that the first of a JVM's options names."""
    return Path(options.split('"')[1].partition("=")[2])


def java(does: str) -> subprocess.Popen[bytes]:
    """A process that does something when its standard input ends, as Spark's JVM does."""
    waits = f"import sys; sys.stdin.read(); {does}"
    return subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE)


def writes(path: Path, text: str = "classes") -> str:
    return f"open({str(path)!r}, 'w').write({text!r})"


def test_the_first_jvm_writes_the_archive_and_the_next_one_uses_it(tmp_path):
    first = ClassArchive(tmp_path / "new folder")
    assert first.jvm_options().startswith('"-XX:ArchiveClassesAtExit=')
    new = named(first.jvm_options())
    jvm = java(writes(new))
    assert not list(new.parent.iterdir())
    first.keep(jvm)
    assert jvm.returncode == 0
    kept = named(ClassArchive(tmp_path / "new folder").jvm_options())
    assert ClassArchive(tmp_path / "new folder").jvm_options().startswith('"-XX:SharedArchiveFile=')
    assert kept.read_text() == "classes"
    assert list(new.parent.iterdir()) == [kept]


def test_a_jvm_that_writes_none_leaves_the_next_one_to_try(tmp_path):
    archive = ClassArchive(tmp_path)
    archive.keep(java("sys.exit(1)"))
    assert ClassArchive(tmp_path).is_missing
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_behind_goes_and_what_another_run_writes_stays(tmp_path):
    left, fresh = tmp_path / "spark-a.jsa.1.new", tmp_path / "spark-a.jsa.2.new"
    for path in (left, fresh):
        path.write_text("a part")
    long_ago = time.time() - 2 * HOUR_S
    os.utime(left, (long_ago, long_ago))
    ClassArchive(tmp_path).keep(java("pass"))
    assert list(tmp_path.iterdir()) == [fresh]


def test_an_archive_that_no_jvm_has_used_for_a_month_goes(tmp_path):
    old, used = tmp_path / "spark-old.jsa", tmp_path / "spark-used.jsa"
    for path in (old, used):
        path.write_text("classes")
        os.utime(path, (1, 1))
    used.touch()
    ClassArchive(tmp_path).keep(java("pass"))
    assert list(tmp_path.iterdir()) == [used]


def test_a_jvm_that_uses_the_archive_says_so(tmp_path):
    archive = ClassArchive(tmp_path)
    archive.file.write_text("classes")
    os.utime(archive.file, (1, 1))
    ClassArchive(tmp_path).jvm_options()
    assert archive.file.stat().st_mtime > 1


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home with nothing in it, and a Java that has an archive of its own."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    own = tmp_path / "java" / "lib" / "server" / "classes.jsa"
    own.parent.mkdir(parents=True)
    own.touch()
    return tmp_path


def test_without_a_folder_the_sixth_jvm_writes_an_archive_and_later_ones_use_it(home):
    starts = []
    for _ in range(STARTS_BEFORE + 2):
        archive = usual_archive()
        starts.append(archive.jvm_options().partition("=")[0])
        if archive.is_written:
            archive.keep(java(writes(archive._new)))
    assert starts == ["", "", "", "", "", '"-XX:ArchiveClassesAtExit', '"-XX:SharedArchiveFile']
    folder = home / ".cache" / "groupkeeper" / "jvm"
    assert [path.suffix for path in folder.iterdir()] == [".jsa"]
    assert folder.stat().st_mode & 0o077 == 0


def test_an_archive_that_cannot_be_written_is_tried_again_only_after_as_many_starts(home):
    tried = []
    for _ in range(2 * (STARTS_BEFORE + 1)):
        archive = usual_archive()
        archive.jvm_options()
        tried.append(archive.is_written)
    assert tried == 2 * [*STARTS_BEFORE * [False], True]


@pytest.mark.parametrize("lacks", ["home", "privacy", "room", "own archive"])
def test_without_a_folder_there_may_be_no_archive(home, monkeypatch, lacks):
    archive = usual_archive()
    assert archive is not None
    archive._starts.write_bytes(b"." * STARTS_BEFORE)
    assert usual_archive().is_written
    match lacks:
        case "home":
            (home / "file").touch()
            monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
        case "privacy":
            archive.file.parent.chmod(0o777)
        case "room":
            usage = module.shutil.disk_usage(home)._replace(free=500_000_000)
            monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage)
        case _:
            (home / "java" / "lib" / "server" / "classes.jsa").unlink()
    assert usual_archive() is None


@pytest.mark.parametrize("what", ["modules", "jars", "version", "JAVA_HOME"])
def test_another_java_or_other_jars_have_another_archive(tmp_path, monkeypatch, what):
    home, spark = tmp_path / "java", tmp_path / "spark"
    for folder in (home / "bin", home / "lib", spark / "jars"):
        folder.mkdir(parents=True)
    (home / "bin" / "java").touch()
    modules = home / "lib" / "modules"
    modules.touch()
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(module, "_find_spark_home", lambda: str(spark))
    before = named(ClassArchive(tmp_path).jvm_options())
    assert named(ClassArchive(tmp_path).jvm_options()) == before
    match what:
        case "modules" | "jars":
            os.utime(modules if what == "modules" else spark / "jars", (1, 1))
        case "version":
            monkeypatch.setattr(module, "__version__", "4.9")
        case _:
            monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert named(ClassArchive(tmp_path).jvm_options()) != before


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    where = tmp_path / "file" / "cache"
    said = command("run", "--log-dir", tmp_path, "--jvm-cache", where, code=1).err
    assert said == f"groupkeeper: {where}: Java classes cannot be kept there: Not a directory\n"


ASKS = r"""
import re
import sys
from pathlib import Path
from pyspark import SparkContext
from groupkeeper.pipeline.spark.class_archive import ClassArchive, end_spark
from groupkeeper.pipeline.spark.session import spark_session
archive = ClassArchive(Path(sys.argv[1]))
spark = spark_session("test", input_bytes=0, archive=archive)
assert spark.range(3).count() == 3
pid = SparkContext._gateway.proc.pid
maps = Path(f"/proc/{pid}/maps").read_text()  # of Java's own archive too
print("mapped" if re.search(r"/spark-\w+\.jsa$", maps, re.MULTILINE) else "not mapped")
print("kept" if (end_spark(archive), SparkContext._active_spark_context)[1] is None else "runs on")
"""


@pytest.mark.spark_long
def test_sparks_own_jvm_writes_an_archive_and_another_one_maps_it(tmp_path):
    def says() -> tuple[list[str], str]:
        ask = [sys.executable, "-c", ASKS, str(tmp_path / "a b")]
        done = subprocess.run(ask, capture_output=True, text=True, check=True)
        return done.stdout.splitlines(), done.stderr

    assert says() == (["not mapped", "kept"], "")
    assert says() == (["mapped", "runs on"], "")
    archive = next((tmp_path / "a b").iterdir())
    archive.chmod(0o600)
    archive.write_bytes(b"no archive")
    assert says() == (["not mapped", "runs on"], "")
