"""A small file is replaced at one moment, on each kind of place."""

from __future__ import annotations

import os

import pytest

from groupkeeper.pipeline.tables import files
from groupkeeper.pipeline.tables.files import (
    copy_files,
    link_files,
    put,
    read_file,
    rename_over,
    replace_file,
    replace_local,
)
from groupkeeper.pipeline.tables.lake import hadoop_path


class FakeStore:
    """An object store: an object is there when its writer is closed, and not before."""

    def __init__(self, scheme: str = "s3a", *, breaks: bool = False) -> None:
        self.objects: dict[str, bytes] = {}
        self._scheme = scheme
        self._breaks = breaks

    def getUri(self) -> FakeStore:
        return self

    def getScheme(self) -> str:
        return self._scheme

    def create(self, place: str, overwrite: bool) -> FakeStore:
        assert overwrite
        self._place, self._written = place, b""
        return self

    def write(self, content: bytes) -> None:
        self._written += content[: len(content) // 2]
        if self._breaks:
            raise OSError("the connection is lost")
        self._written = content

    def close(self) -> None:
        self.objects[self._place] = self._written


def test_a_local_file_is_replaced_and_nothing_is_left_beside_it(spark, tmp_path):
    place = tmp_path / "new" / "published.json"
    for content in (b"old", b"new"):
        replace_file(spark, str(place), content)
        assert read_file(spark, str(place)) == content
    assert [path.name for path in place.parent.iterdir()] == ["published.json"]
    assert read_file(spark, str(tmp_path / "absent")) is None


def test_a_local_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path, monkeypatch):
    place = tmp_path / "published.json"
    replace_local(place, b"old")

    def full(_: int) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            replace_local(place, b"new")
    assert place.read_bytes() == b"old"
    replace_local(place, b"new")
    assert place.read_bytes() == b"new"


def test_a_file_of_a_file_system_such_as_hdfs_is_renamed_over_the_old_one(spark, tmp_path):
    place, file_system = hadoop_path(spark, str(tmp_path / "published.json"))
    for content in (b"old", b"new"):
        rename_over(spark, file_system, place, content)
        assert read_file(spark, str(tmp_path / "published.json")) == content
    names = {path.name for path in tmp_path.iterdir() if not path.name.endswith(".crc")}
    assert names == {"published.json"}


def test_an_object_is_replaced_by_one_request_or_not_at_all():
    store = FakeStore()
    put(store, "published.json", b"old")
    assert store.objects == {"published.json": b"old"}
    store._breaks = True
    with pytest.raises(OSError, match="lost"):
        put(store, "published.json", b"newer")
    assert store.objects == {"published.json": b"old"}


@pytest.mark.parametrize(
    ("scheme", "way"), [("s3a", "put"), ("gs", "put"), ("hdfs", "rename"), ("abfs", "rename")]
)
def test_the_way_is_chosen_by_the_kind_of_place(monkeypatch, scheme, way):
    store = FakeStore(scheme)
    renamed = []
    monkeypatch.setattr(files, "hadoop_path", lambda _, path: (path, store))
    monkeypatch.setattr(files, "rename_over", lambda *args: renamed.append(args[2]))
    replace_file(None, f"{scheme}://bucket/published.json", b"new")
    address = f"{scheme}://bucket/published.json"
    assert (list(store.objects), renamed) == (([address], []) if way == "put" else ([], [address]))


@pytest.fixture
def folders(tmp_path):
    """A folder with a file, and one with another."""
    places = tmp_path / "v=1", tmp_path / "v=2"
    for number, place in enumerate(places):
        place.mkdir()
        (place / f"part-{number}.parquet").write_bytes(b"rows")
    return places


@pytest.mark.parametrize("has_links", [True, False])
def test_files_of_this_machine_are_linked_into_another_folder(
    spark, folders, monkeypatch, has_links
):
    old, new = folders

    def refuse(*_):
        raise PermissionError

    with monkeypatch.context() as patch:
        if not has_links:
            patch.setattr(os, "link", refuse)
        link_files(spark, str(old), str(new))
    assert {file.name for file in new.iterdir()} == {"part-0.parquet", "part-1.parquet"}
    linked = new / "part-0.parquet"
    assert linked.samefile(old / "part-0.parquet") == has_links
    assert linked.read_bytes() == b"rows"


def test_files_of_other_file_systems_are_copied(spark, folders):
    (old, file_system), (new, _) = (hadoop_path(spark, str(folder)) for folder in folders)
    copy_files(spark, file_system, old, new)
    names = {file.name for file in folders[1].iterdir() if not file.name.endswith(".crc")}
    assert names == {"part-0.parquet", "part-1.parquet"}
    assert len(list(folders[0].iterdir())) == 1


@pytest.mark.parametrize("is_local", [True, False])
def test_only_the_wanted_files_come_into_a_folder_that_is_new(spark, folders, tmp_path, is_local):
    old = folders[0]
    (old / "hour-00007-.parquet").write_bytes(b"rows")
    new = tmp_path / "v=3"
    if is_local:
        link_files(spark, str(old), str(new), lambda name: name.startswith("hour"))
    else:
        (place, file_system), (target, _) = (hadoop_path(spark, str(each)) for each in (old, new))
        copy_files(spark, file_system, place, target, lambda name: name.startswith("hour"))
    names = {file.name for file in new.iterdir() if not file.name.endswith(".crc")}
    assert names == {"hour-00007-.parquet"}
