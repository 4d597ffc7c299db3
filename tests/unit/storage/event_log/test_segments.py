"""Sealed segments and their manifest: what is written is what is read, and damage is seen."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.event_kinds import EVENT_SCHEMA_VERSION
from groupkeeper.storage.event_log.manifest import (
    MANIFEST,
    REWRITE_LINES,
    add,
    read_manifest,
    reconcile,
    remove,
)
from groupkeeper.storage.event_log.sealing.segment_writer import (
    SegmentWriter,
    remove_temporary,
    write_segments,
)
from groupkeeper.storage.event_log.segments import (
    SegmentError,
    SegmentName,
    check_version,
    describe,
    file_sha256,
    has_group,
    parse_name,
    read_segment,
    segment_names,
)
from groupkeeper.storage.segment_lines import EventDict

NOON_MS = 1_700_049_600_000
DAY_MS = 86_400_000


def events(first: int, last: int, *, log_id: str = "log", ts_ms: int = NOON_MS) -> list[EventDict]:
    common = {"log_id": log_id, "ts_ms": ts_ms, "kind": "group_created"}
    return [common | {"seq": seq, "group": f"g{seq % 3}"} for seq in range(first, last + 1)]


def read_all(directory: Path) -> list[EventDict]:
    return [e for name in segment_names(directory) for e in read_segment(directory / str(name))]


def files(directory: Path) -> Sequence[str]:
    return [str(name) for name in segment_names(directory)]


def test_the_manifest_tells_the_schema_version_of_each_file(tmp_path: Path) -> None:
    (segment,) = write_segments(tmp_path, events(1, 2))
    assert f'"schema_version":{EVENT_SCHEMA_VERSION}}}' in (tmp_path / MANIFEST).read_text()
    (tmp_path / MANIFEST).unlink()
    assert (
        reconcile(tmp_path, ["log"]).segments[segment.file].schema_version == segment.schema_version
    )


def test_a_file_of_version_1_is_told_by_its_commits_where_the_manifest_does_not(
    tmp_path: Path,
) -> None:
    data = Path(__file__).parents[3] / "data"
    for release, version in (("0.1.0", 1), ("0.1.0-format-2", 2)):
        directory = data / release / "stopped" / "log"
        assert {s.schema_version for s in read_manifest(directory).segments.values()} == {None}
        found = [describe(directory, name) for name in segment_names(directory)]
        assert max(found, key=lambda segment: segment.json_bytes).schema_version == version
        assert {segment.schema_version for segment in found} <= {version, 2}


def test_a_file_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    (segment,) = write_segments(tmp_path, events(1, 2))
    newer = msgspec.structs.replace(segment, schema_version=EVENT_SCHEMA_VERSION + 1)
    add(tmp_path, [newer])
    with pytest.raises(SegmentError, match="written by a newer groupkeeper"):
        check_version(read_manifest(tmp_path).segments[segment.file])
    assert not verify(tmp_path).is_sound


def test_what_is_sealed_is_what_is_read_with_a_line_in_the_manifest(tmp_path: Path) -> None:
    (segment,) = write_segments(tmp_path, events(1, 100))
    assert segment.file == "dt=2023-11-15/events-log-1-100.jsonl.gz"
    assert read_all(tmp_path) == events(1, 100)
    assert read_manifest(tmp_path).segments == {segment.file: segment}
    assert segment.events == 100
    assert describe(tmp_path, segment.name) == segment
    assert file_sha256(tmp_path / segment.file) == segment.sha256


def test_a_new_segment_begins_with_a_day_a_log_a_gap_and_at_its_size(tmp_path: Path) -> None:
    written = [
        *events(1, 10),
        *events(11, 20, ts_ms=NOON_MS + DAY_MS),
        *events(30, 39, ts_ms=NOON_MS + DAY_MS),
        *events(40, 45, log_id="other", ts_ms=NOON_MS + DAY_MS),
    ]
    write_segments(tmp_path, written)
    assert files(tmp_path) == [
        "dt=2023-11-15/events-log-1-10.jsonl.gz",
        "dt=2023-11-16/events-log-11-20.jsonl.gz",
        "dt=2023-11-16/events-log-30-39.jsonl.gz",
        "dt=2023-11-16/events-other-40-45.jsonl.gz",
    ]
    assert read_all(tmp_path) == written
    small = write_segments(tmp_path / "small", events(1, 100), segment_bytes=1_000)
    assert len(small) > 5
    assert all(segment.json_bytes < 1_200 for segment in small)
    assert read_all(tmp_path / "small") == events(1, 100)


@pytest.mark.parametrize(
    "path",
    [
        "_manifest.jsonl",
        "dt=2023-11-15/.events-log-1.tmp",
        "dt=2023-11-15/_events-log-1-2.groups.gz",
        "events-log-1-2.jsonl.gz",
        "dt=now/events-log-1-2.jsonl.gz",
    ],
)
def test_what_is_no_segment_is_passed_over(path: str) -> None:
    assert parse_name(path) is None


def test_a_name_says_what_its_path_says() -> None:
    name = SegmentName("2023-11-15", "a-b", 3, 9)
    assert parse_name(str(name)) == name


def test_a_list_of_groups_rules_a_segment_out_and_its_absence_does_not(tmp_path: Path) -> None:
    (segment,) = write_segments(tmp_path, events(1, 10))
    assert has_group(tmp_path, segment.name, "g1")
    assert not has_group(tmp_path, segment.name, "g7")
    (tmp_path / segment.name.groups_file).unlink()
    assert has_group(tmp_path, segment.name, "g7")


def test_a_segment_that_is_cut_off_or_holds_something_else_is_an_error(tmp_path: Path) -> None:
    (segment,) = write_segments(tmp_path, events(1, 1_000))
    path = tmp_path / segment.file
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SegmentError, match="cannot be unpacked"):
        list(read_segment(path))
    path.write_bytes(gzip.compress(b"{no\n"))
    with pytest.raises(SegmentError, match="no event"):
        list(read_segment(path))
    for line in (b"{}\n", b'{"log_id": "log", "seq": 1, "ts_ms": "abc"}\n'):
        path.write_bytes(gzip.compress(line))
        with pytest.raises(SegmentError, match="no event"):
            describe(tmp_path, segment.name)
    (other,) = write_segments(tmp_path / "other", events(2, 1_000))
    path.write_bytes((tmp_path / "other" / other.file).read_bytes())
    with pytest.raises(SegmentError, match=r"holds event 2 of log log .* in the place of event 1"):
        describe(tmp_path, segment.name)


def test_a_line_that_a_crash_cut_off_costs_nothing(tmp_path: Path) -> None:
    first, second = write_segments(tmp_path, [*events(1, 5), *events(6, 9, ts_ms=NOON_MS + DAY_MS)])
    manifest = tmp_path / MANIFEST
    manifest.write_bytes(manifest.read_bytes()[:-20])
    assert list(read_manifest(tmp_path).segments) == [first.file]
    assert read_manifest(tmp_path).unreadable == [2]
    assert reconcile(tmp_path, ["log"]).segments == {first.file: first, second.file: second}
    assert read_manifest(tmp_path).segments == {first.file: first, second.file: second}


def test_a_segment_without_a_line_gets_one_of_its_own_logs_alone(tmp_path: Path) -> None:
    segments = write_segments(tmp_path, [*events(1, 5), *events(1, 5, log_id="foreign")])
    (tmp_path / MANIFEST).unlink()
    assert list(reconcile(tmp_path, ["log"]).segments) == [segments[0].file]


def test_what_was_noted_as_removed_goes_at_the_next_start(tmp_path: Path) -> None:
    first, second = write_segments(tmp_path, [*events(1, 5), *events(6, 9, ts_ms=NOON_MS + DAY_MS)])
    remove(tmp_path, [first.file])
    assert files(tmp_path) == [first.file, second.file]
    reconcile(tmp_path, ["log"])
    assert files(tmp_path) == [second.file]
    assert not (tmp_path / "dt=2023-11-15").exists()


def test_a_manifest_that_is_mostly_about_what_went_is_written_anew(tmp_path: Path) -> None:
    (kept,) = write_segments(tmp_path, events(1, 5))
    gone = SegmentName("2023-11-15", "log", 6, 6)
    for _ in range(2):
        remove(tmp_path, [str(gone)] * REWRITE_LINES)
    manifest = read_manifest(tmp_path)
    assert manifest.segments == {kept.file: kept}
    assert manifest.lines <= REWRITE_LINES


def test_an_unfinished_segment_is_hidden_and_leaves_nothing(tmp_path: Path) -> None:
    for end in ("discarded", "killed"):
        writer = SegmentWriter(tmp_path, "log", 1, NOON_MS)
        writer.add([("g", b"{}\n")], NOON_MS)
        assert files(tmp_path) == []
        if end == "discarded":
            writer.discard()
        else:
            writer._file.close()
            remove_temporary(tmp_path, lambda log_id, seq: (log_id, seq) == ("log", 1))
        assert list((tmp_path / "dt=2023-11-15").iterdir()) == []


def test_a_large_segment_is_made_durable_as_it_grows(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "log", 1, NOON_MS)
    line = b"".join(b"%d," % (number * 7919 % 1_000_003) for number in range(40_000)) + b"\n"
    for _ in range(20):
        writer.add([("g", line)], NOON_MS)
    segment = writer.seal()
    add(tmp_path, [segment])
    assert segment.file_bytes == (tmp_path / segment.file).stat().st_size > 1024 * 1024
    assert segment.sha256 == file_sha256(tmp_path / segment.file)
    assert gzip.decompress((tmp_path / segment.file).read_bytes()) == line * 20


class NearlyFullDisk:
    """A file that takes a part of what it is given, as ``write(2)`` does where room runs out."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def write(self, data: memoryview) -> int:
        return self._file.write(data[: max(1, len(data) // 3)])

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def test_a_disk_that_takes_a_part_of_what_is_written_gets_the_rest_as_well(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "log", 1, NOON_MS)
    writer._file = NearlyFullDisk(writer._file)  # type: ignore[assignment]
    line = b"".join(b"%d," % (number * 7919 % 1_000_003) for number in range(40_000)) + b"\n"
    writer.add([("g", line)], NOON_MS)
    segment = writer.seal()
    assert segment.file_bytes == (tmp_path / segment.file).stat().st_size
    assert gzip.decompress((tmp_path / segment.file).read_bytes()) == line
