"""Files and rows as one stream, whatever has become of the files."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupkeeper import read_events
from groupkeeper.coordinator.cli.main import app
from groupkeeper.storage.event_log.manifest import MANIFEST
from groupkeeper.storage.event_log.segments import SegmentError
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import DAY_MS, SealedStore, until


@pytest.fixture
async def store(tmp_path: Path) -> SealedStore:
    """Three days in files, and the newest row; closed."""
    # A day is one file, although the clock moves at once: the first day is one row, because a first
    # segment is closed early, and later segments are closed after two days or by the next day.
    store = SealedStore(tmp_path, segment_ms=2 * DAY_MS)
    owner = await store.owner()
    for day in range(3):
        commits = [commit(f"g{number}", 100 * day + number) for number in range(3)]
        for records in [[each] for each in commits] if day else [commits]:
            await store.append(owner, 0, records)
        store.now_ms += DAY_MS
    store.now_ms += DAY_MS
    await until(lambda: owner.storage.stats()["sealed_seq"] == 9)
    await until(lambda: store.live_seqs() == [9])
    await owner.storage.close()
    assert len(store.files()) == 3
    return store


def gaps_of(store: SealedStore, log_dir: Path, after_seq: int = 0) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    for _ in read_events(
        store.path, after_seq, log_dir=log_dir, on_gap=lambda *gap: gaps.append(gap)
    ):
        pass
    return gaps


def test_a_whole_log_has_no_gap(store: SealedStore) -> None:
    assert gaps_of(store, store.log_dir) == []
    assert store.read() == store.appended
    assert store.read(after_seq=4) == store.appended[4:]
    assert gaps_of(store, store.log_dir, after_seq=4) == []


def test_without_a_manifest_the_names_of_the_files_tell_what_there_is(store: SealedStore) -> None:
    (store.log_dir / MANIFEST).unlink()
    assert store.read() == store.appended
    assert gaps_of(store, store.log_dir) == []


def test_a_damaged_line_of_the_manifest_hides_no_file(store: SealedStore) -> None:
    lines = (store.log_dir / MANIFEST).read_bytes().splitlines(keepends=True)
    lines[1] = b"garbage\n"
    (store.log_dir / MANIFEST).write_bytes(b"".join(lines))
    assert store.read() == store.appended
    assert store.read(since_ms=store.appended[5]["ts_ms"], group_id="g2") == [
        event for event in store.appended[5:] if event["group"] == "g2"
    ]


def test_what_is_nowhere_is_told_and_the_rest_is_read(store: SealedStore, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert gaps_of(store, elsewhere) == [(1, 8)]
    assert gaps_of(store, elsewhere, after_seq=3) == [(4, 8)]
    assert gaps_of(store, elsewhere, after_seq=8) == []
    assert list(read_events(store.path, log_dir=elsewhere)) == store.appended[8:]


def test_a_gap_between_two_files_is_told(store: SealedStore) -> None:
    (store.log_dir / MANIFEST).unlink()
    next(store.log_dir.glob("dt=*/events-*-4-6.jsonl.gz")).unlink()
    assert gaps_of(store, store.log_dir) == [(4, 6)]
    assert store.read() == [*store.appended[:3], *store.appended[6:]]


def test_who_looks_at_the_last_events_hears_of_those_that_are_nowhere(store: SealedStore) -> None:
    store.log_dir.rename(store.log_dir.with_name("moved"))
    tail = ["log", "tail", "--store", str(store.path)]
    told = CliRunner().invoke(app, tail)
    assert told.exit_code == 0
    assert told.stdout.count("\n") == 1
    assert f"events 1 to 8 are neither in {store.path} nor in its files" in told.stderr
    last_alone = CliRunner().invoke(app, [*tail, "-n", "1"])
    assert (last_alone.stdout, last_alone.stderr) == (told.stdout, "")


@pytest.mark.parametrize(
    ("damage", "what", "least"),
    [
        (lambda content: content[:40], "cannot be unpacked", []),
        (lambda _: gzip.compress(b"no json\n"), "holds a line that is no event", []),
        (lambda content: content + b"behind", "cannot be unpacked", [4, 5, 6]),
        (lambda content: _altered(content), "(has|its checksum)", [4, 5, 6]),
    ],
    ids=["cut off", "no event", "something behind its end", "another value"],
)
def test_a_damaged_file_is_told_to_who_looks_and_the_rest_is_shown(
    store: SealedStore, damage: Callable[[bytes], bytes], what: str, least: list[int]
) -> None:
    file = next(store.log_dir.glob("dt=*/events-*-4-6.jsonl.gz"))
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(SegmentError, match=r"-4-6\.jsonl\.gz: (has \d+ bytes|its checksum)"):
        store.read()
    tail = ["log", "tail", "--store", str(store.path)]
    told = CliRunner().invoke(app, [*tail, "-o", "json"])
    assert told.exit_code == 0, told.output
    seqs = [json.loads(line)["seq"] for line in told.stdout.splitlines()]
    assert seqs == [1, 2, 3, *least, *(event["seq"] for event in store.appended[6:])]
    (line,) = told.stderr.splitlines()
    assert re.match(f"{re.escape(str(file))}: {what}", line)
    assert "Replace the file with a good copy" in line
    assert CliRunner().invoke(app, [*tail, "-n", "2"]).stderr == ""


def _altered(content: bytes) -> bytes:
    """The same events, the first of them with another time of its commit."""
    lines = gzip.decompress(content)
    altered = lines.replace(b'"commit_time_ms":1', b'"commit_time_ms":2', 1)
    assert altered != lines
    return gzip.compress(altered)


def test_content_of_another_segment_is_damage_though_it_reads_well(store: SealedStore) -> None:
    first, second, _ = sorted(store.log_dir.glob("dt=*/events-*"))
    second.write_bytes(first.read_bytes())
    for group_id in (None, "g1"):
        with pytest.raises(SegmentError, match=r"-4-6\.jsonl\.gz: (has \d+ bytes|its checksum)"):
            store.read(group_id=group_id)
    damaged: list[int] = []
    found = store.read(on_damage=lambda segment, _: damaged.append(segment.name.first_seq))
    assert (found, damaged) == ([*store.appended[:3], *store.appended[6:]], [4])
    assert store.read(group_id="not-in-it") == []


def test_a_file_that_is_listed_and_missing_is_damage_or_a_gap(store: SealedStore) -> None:
    next(store.log_dir.glob("dt=*/events-*-4-6.jsonl.gz")).unlink()
    with pytest.raises(SegmentError, match=r"-4-6\.jsonl\.gz: is in the manifest"):
        store.read()
    gaps: list[tuple[int, int]] = []
    found = store.read(passes_absent=True, on_gap=lambda *gap: gaps.append(gap))
    assert (found, gaps) == ([*store.appended[:3], *store.appended[6:]], [(4, 6)])
    told = CliRunner().invoke(app, ["log", "tail", "--store", str(store.path)])
    assert told.exit_code == 0
    assert told.stdout.count("\n") == len(found)
    assert f"events 4 to 6 are neither in {store.path} nor in its files" in told.stderr
