"""What is not what it should be does not become a table; it is told, and read once it is mended."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from datetime import date
from pathlib import Path

import pytest
import typer

from groupkeeper.coordinator.cli.failing import FAILED
from groupkeeper.coordinator.cli.pipeline.spark import failures_told
from groupkeeper.pipeline.run import run
from groupkeeper.pipeline.tables import ingest
from groupkeeper.pipeline.tables.bronze import read_bronze, read_coverage, read_events
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.storage.event_log.manifest import MANIFEST
from tests.pipeline.conftest import Site, a_site, as_for_large_data
from tests.pipeline.events import DAY_MS, commit
from tests.pipeline.restore.conftest import command

FIRST, SECOND, THIRD = (date(1970, 1, day) for day in range(1, 4))
NEWEST = "dt=1970-01-03/events-log-21-30.jsonl.gz"
MIDDLE = "dt=1970-01-02/events-log-11-20.jsonl.gz"


def three_days(site: Site, *, is_listed: bool = True, **changes) -> dict[str, bytes]:
    """Seal ten commits on each of three days; returns what is in the files."""
    for day in range(3):
        first = 1 + 10 * day
        site.seal(
            commit(seq, [("orders", 0, seq, seq - 1 or -1)], ts_ms=day * DAY_MS + seq, **changes)
            for seq in range(first, first + 10)
        )
    if not is_listed:
        (site.log_dir / MANIFEST).unlink()
    return {str(path.relative_to(site.log_dir)): path.read_bytes() for path in files_of(site)}


def files_of(site: Site) -> list[Path]:
    return sorted(site.log_dir.glob("dt=*/events-*"))


def offsets(site: Site) -> list[int]:
    return sorted(
        row["topics"][0]["partitions"][0]["offset"]
        for row in read_events(site.spark, site.lake).collect()
    )


def lines_of(data: bytes) -> list[bytes]:
    return gzip.decompress(data).splitlines(keepends=True)


def older(data: bytes) -> bytes:
    """An older copy: it has fewer events."""
    return gzip.compress(b"".join(lines_of(data)[:6]))


def flipped(data: bytes) -> bytes:
    return data[:60] + bytes([data[60] ^ 4]) + data[61:]


def of_another(data: bytes) -> bytes:
    return gzip.compress(b"".join(line.replace(b'"log"', b'"lag"') for line in lines_of(data)))


def twice(data: bytes) -> bytes:
    lines = lines_of(data)
    return gzip.compress(b"".join([*lines[:5], *lines[4:]]))


def no_events(data: bytes) -> bytes:
    return gzip.compress(b"".join([*lines_of(data)[:-1], b'{"seq":"x"}\n']))


def nothing_known(data: bytes) -> bytes:
    return gzip.compress(b"".join([*lines_of(data)[:-1], b"{}\n"]))


def no_time(data: bytes) -> bytes:
    lines = lines_of(data)
    return gzip.compress(b"".join([*lines[:-1], lines[-1].replace(b'"ts_ms"', b'"when"')]))


WITHOUT = "has a line without log_id, seq or ts_ms, which every event has"
DAMAGES = {
    "cut off": (lambda data: data[:-9], "cannot be read: it is cut off or damaged"),
    "a bit flipped": (flipped, "cannot be read: it is cut off or damaged"),
    "a line that is no event": (no_events, "cannot be read: it is cut off or damaged"),
    "older": (
        older,
        "has events {first} to {sixth} of log log, but its name says others",
    ),
    "of another log": (of_another, "has events {first} to {last} of log lag, but its name says"),
    "an event twice": (twice, "has 11 events, but must have {first} to {last}, each once"),
    "a line without fields": (nothing_known, WITHOUT),
    "an event without a time": (no_time, WITHOUT),
    "empty": (lambda data: b"", "has no events"),
}


def test_a_file_that_no_manifest_vouches_for_is_read_and_not_taken_where_it_is_wrong(
    spark, tmp_path
):
    """Many logs in one folder, each with another damage: one bad file hides no other."""
    site = a_site(spark, tmp_path)
    for number, (damage, _) in enumerate(DAMAGES.values()):
        first = 1 + 10 * number
        (path,) = site.seal(
            commit(seq, [("orders", 0, seq)], ts_ms=seq) for seq in range(first, first + 10)
        )
        path.write_bytes(damage(path.read_bytes()))
    last = 1 + 10 * len(DAMAGES)
    site.seal([commit(last, [("orders", 0, last)], ts_ms=last)])
    (site.log_dir / MANIFEST).unlink()
    found = {each.file.rpartition("/")[2]: each.problem for each in site.ingest()}
    assert offsets(site) == [last]
    for number, (_, problem) in enumerate(DAMAGES.values()):
        first = 1 + 10 * number
        said = found.pop(f"events-log-{first}-{first + 9}.jsonl.gz")
        assert said.startswith(problem.format(first=first, sixth=first + 5, last=first + 9))
    assert found == {}


def gaps(site: Site) -> list[str]:
    return [str(gap) for gap in read_coverage(site.spark, site.lake).gaps()]


@pytest.mark.parametrize("is_listed", [True, False])
def test_of_a_wrong_file_nothing_is_taken_until_a_good_copy_is_in_its_place(site, is_listed):
    whole = three_days(site, is_listed=is_listed)
    for file in (MIDDLE, NEWEST):
        (site.log_dir / file).write_bytes(older(whole[file]))
    site.ingest()
    texts = []
    for file, first in ((MIDDLE, 11), (NEWEST, 21)):
        of_name = f"has events {first} to {first + 5} of log log, but its name says others"
        size = f"has {len(older(whole[file]))} bytes, the manifest says {len(whole[file])}"
        texts.append(f"{file} {size if is_listed else of_name}")
    assert gaps(site) == [f"events 11 to 30 of log log are missing ({'; '.join(texts)})"]
    assert offsets(site) == [*range(1, 11)]
    site.ingest()  # nothing is new
    assert len(list(Path(site.lake.verdicts).glob("batch_id=*"))) == 1
    for file in (MIDDLE, NEWEST):
        (site.log_dir / file).write_bytes(whole[file])
    assert (site.ingest(), gaps(site), offsets(site)) == ([], [], [*range(1, 31)])


@pytest.mark.parametrize("file", [MIDDLE, NEWEST])
def test_a_file_that_is_listed_and_not_there_is_missing_even_at_the_end(site, file):
    whole = three_days(site)
    (site.log_dir / file).unlink()
    assert [str(each) for each in site.ingest()] == [f"{file} is in the manifest and not there"]
    (gap,) = read_coverage(site.spark, site.lake).gaps()
    assert gap.from_day == gap.to_day == {MIDDLE: SECOND, NEWEST: THIRD}[file]
    (site.log_dir / file).write_bytes(whole[file])
    assert (site.ingest(), gaps(site)) == ([], [])
    assert offsets(site) == [*range(1, 31)]


def test_a_copy_in_another_folder_is_as_good(site):
    whole = three_days(site)
    (site.log_dir / MIDDLE).write_bytes(older(whole[MIDDLE]))
    copy = site.log_dir / "late" / Path(MIDDLE).name
    copy.parent.mkdir()
    copy.write_bytes(flipped(whole[MIDDLE]))
    assert [each.file for each in site.ingest()] == [MIDDLE, f"late/{copy.name}"]
    assert len(gaps(site)) == 1
    copy.write_bytes(whole[MIDDLE])
    assert (site.ingest(), gaps(site)) == ([], [])
    assert offsets(site) == [*range(1, 31)]


def run_says(site: Site, **options) -> tuple[bool, list[str]]:
    """What `groupkeeper pipeline run` says, without its progress."""
    said: list[str] = []
    is_sound = run(site.spark, str(site.log_dir), site.lake.root, say=said.append, **options)
    return is_sound, [line for line in said if not line.endswith(" s)") and "reading" not in line]


def test_a_file_that_is_damaged_after_it_was_read_is_told_and_what_was_read_stands(site):
    whole = three_days(site)
    assert site.run().held_back == {}
    (site.log_dir / MIDDLE).write_bytes(flipped(whole[MIDDLE]))
    is_sound, lines = run_says(site)
    assert (is_sound, lines[0]) == (False, "nothing has changed")
    assert lines[1].startswith(f"{MIDDLE} does not have the checksum in the manifest. It was not")
    assert run_says(site) == (False, lines)
    (site.log_dir / MIDDLE).write_bytes(whole[MIDDLE])
    assert run_says(site) == (True, ["nothing has changed"])
    assert offsets(site) == [*range(1, 31)]


def test_a_bad_late_copy_is_named_with_the_original_that_is_missing(site):
    """It was said of the copy that no event is known to be missing because of it."""
    whole = three_days(site)
    late = site.log_dir / "late" / Path(MIDDLE).name
    (site.log_dir / MIDDLE).unlink()
    late.parent.mkdir()
    late.write_bytes(older(whole[MIDDLE]))
    is_sound, lines = run_says(site)
    size = f"has {len(older(whole[MIDDLE]))} bytes, the manifest says {len(whole[MIDDLE])}"
    assert not is_sound
    assert [line for line in lines if "No event is known" in line] == []
    assert (
        f"events 11 to 20 of log log are missing ({MIDDLE} is in the manifest and not there; "
        f"late/{late.name} {size})"
    ) in lines[1]


def test_a_copy_with_the_same_bytes_makes_nothing_be_computed_again(site):
    whole = three_days(site)
    site.run()
    copy = site.log_dir / "late" / Path(MIDDLE).name
    copy.parent.mkdir()
    copy.write_bytes(whole[MIDDLE])
    assert site.run().published == []
    assert len(list(Path(site.lake.events).glob("dt=*/batch_id=*"))) == 3
    assert offsets(site) == [*range(1, 31)]


def test_a_file_that_is_replaced_by_another_right_one_is_read_again(site):
    """It had been written anew, with what was wrong before set right."""
    three_days(site, is_listed=False)
    site.ingest()
    before = read_coverage(site.spark, site.lake)
    site.seal(commit(n, [("orders", 0, n + 100)], ts_ms=DAY_MS + n) for n in range(11, 21))
    site.ingest()
    assert offsets(site) == sorted([*range(1, 11), *range(111, 121), *range(21, 31)])
    after = read_coverage(site.spark, site.lake)
    changed = [day for day in after.days() if after.fingerprint(day) != before.fingerprint(day)]
    assert changed == [SECOND]


def test_what_was_read_before_the_manifest_said_otherwise_does_not_count(site):
    """An older copy of the log was read, and then its manifest came."""
    three_days(site)
    manifest = site.log_dir / MANIFEST
    listed = manifest.read_bytes()
    manifest.unlink()
    events = [commit(n, [("orders", 0, n + 100)], ts_ms=DAY_MS + n) for n in range(11, 21)]
    good = (site.log_dir / MIDDLE).read_bytes()
    site.seal(events)
    manifest.unlink()
    site.ingest()
    assert gaps(site) == []
    manifest.write_bytes(listed)
    assert [each.file for each in site.ingest()] == [MIDDLE]
    assert len(gaps(site)) == 1
    assert offsets(site) == [*range(1, 11), *range(21, 31)]
    (site.log_dir / MIDDLE).write_bytes(good)
    assert (site.ingest(), gaps(site)) == ([], [])
    assert offsets(site) == [*range(1, 31)]


def test_a_folder_that_was_copied_anew_is_not_read_again(site):
    three_days(site)
    site.ingest()
    before = read_coverage(site.spark, site.lake).segments
    for path in files_of(site):
        os.utime(path, (1, 1))
    site.ingest()
    assert len(list(Path(site.lake.verdicts).glob("batch_id=*"))) == 2
    assert len(list(Path(site.lake.events).glob("dt=*/batch_id=*"))) == 3
    assert read_coverage(site.spark, site.lake).segments == before


def test_a_small_run_sees_the_files_that_spark_sees(site, tmp_path):
    """This process lists the folder and computes the checksums of a few files by itself."""
    names = [
        NEWEST,
        "events-log-1-2.jsonl.gz",
        "late/a b%20c=ü+/events-log-3-4.jsonl.gz",
        "_aside/events-log-5-6.jsonl.gz",
        "_of=day/events-log-7-8.jsonl.gz",
        ".trash/events-log-9-9.jsonl.gz",
        "late/events-empty-1-1.jsonl.gz",
        "late/_events-log-1-1.jsonl.gz",
        "late/events-log-1-1.jsonl",
    ]
    for number, name in enumerate(names):
        (site.log_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (site.log_dir / name).write_bytes(b"" if "empty" in name else b"x" * (number + 1))
        os.utime(site.log_dir / name, ns=(0, 1_700_000_000_123_456_789 + number))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "events-log-8-8.jsonl.gz").write_bytes(b"linked")
    (site.log_dir / "linked").symlink_to(tmp_path / "elsewhere")

    def seen() -> tuple:
        folder = ingest.LogFolder(site.spark, str(site.log_dir))
        files = folder.files()
        gone = "late/events-gone-1-1.jsonl.gz"
        return files, folder.contents([*(each.file for each in files), gone])

    here = seen()
    with as_for_large_data(site.spark):
        assert seen() == here
    assert len(here[0]) == len(here[1]) == 6


def test_a_full_disk_is_told_in_one_line(capsys):
    with pytest.raises(typer.Exit) as ended, failures_told():
        raise OSError(errno.ENOSPC, "No space left on device", "/tables/part")
    assert ended.value.exit_code == FAILED
    assert capsys.readouterr().err == "groupkeeper: /tables/part: No space left on device\n"


def test_a_file_that_retention_takes_before_its_batch_is_passed_over(site, monkeypatch):
    three_days(site, is_listed=False)
    contents = ingest.LogFolder.contents

    def gone(folder, files):
        (site.log_dir / NEWEST).unlink(missing_ok=True)
        return contents(folder, files)

    monkeypatch.setattr(ingest.LogFolder, "contents", gone)
    assert site.ingest() == []
    assert offsets(site) == [*range(1, 21)]


def test_a_batch_that_died_leaves_nothing_of_a_file_that_is_wrong_now(site, monkeypatch):
    three_days(site, is_listed=False)
    write_held = ingest.write_held

    def die(*args):
        raise RuntimeError("killed")

    monkeypatch.setattr(ingest, "write_held", die)
    with pytest.raises(Exception, match="killed"):
        site.ingest()
    monkeypatch.setattr(ingest, "write_held", write_held)
    (site.log_dir / NEWEST).write_bytes(b"")
    site.ingest()
    assert offsets(site) == [*range(1, 21)]
    assert not list(Path(site.lake.events).glob("dt=1970-01-03/*"))


def test_tables_that_were_moved_or_copied_go_on_where_they_are(site, tmp_path, monkeypatch):
    newest = three_days(site, is_listed=False)[NEWEST]
    (site.log_dir / NEWEST).unlink()
    site.ingest()
    (site.log_dir / NEWEST).write_bytes(newest)

    def die(*args):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(ingest._Batch, "_note", die)
        with pytest.raises(Exception, match="killed"):
            site.ingest()
    shutil.copytree(site.lake.root, tmp_path / "copy")
    shutil.move(site.lake.root, tmp_path / "moved")
    for place in ("copy", "moved"):
        site.lake = Lake(str(tmp_path / place))
        for _ in range(2):
            assert site.ingest() == []
            assert offsets(site) == [*range(1, 31)]
            assert len(read_bronze(site.spark, site.lake).collect()) == 30
        assert len(list(Path(site.lake.verdicts).glob("batch_id=*"))) == 2


def test_batches_are_limited_and_hold_no_name_twice(monkeypatch):
    files = [ingest.LogFile(f"{folder}/{n}", 100, 0) for folder in "ab" for n in range(3)]
    monkeypatch.setattr(ingest, "MAX_BATCH_BYTES", 150)
    batches = [[each.file for each in batch] for batch in ingest._batches(files)]
    assert batches == [["a/0", "a/1"], ["a/2", "b/0"], ["b/1", "b/2"]]
    monkeypatch.setattr(ingest, "MAX_BATCH_BYTES", 10**9)
    batches = [[each.file for each in batch] for batch in ingest._batches(files)]
    assert batches == [["a/0", "a/1", "a/2"], ["b/0", "b/1", "b/2"]]


def test_what_two_folders_lack_is_told_of_both(spark, tmp_path):
    north, south = (a_site(spark, tmp_path / name) for name in ("north", "south"))
    lake = Lake(str(tmp_path / "both"))
    three_days(north)
    three_days(south, log_id="other")
    (north.log_dir / NEWEST).unlink()
    ingest.ingest(spark, str(north.log_dir), lake)
    assert [each.file for each in ingest.ingest(spark, str(south.log_dir), lake)] == [NEWEST]
    shutil.move(north.log_dir, south.log_dir / "north")
    assert [each.file for each in ingest.ingest(spark, str(south.log_dir), lake)] == [
        f"north/{NEWEST}"
    ]


def test_the_command_says_what_is_wrong_and_what_to_do(site):
    whole = three_days(site)
    (site.log_dir / NEWEST).write_bytes(of_another(whole[NEWEST]))
    arguments = ["run", "--log-dir", site.log_dir, "--out", site.lake.root]
    said = command(*arguments, code=1).err
    assert (
        f"1970-01-03 is not published: events 21 to 30 of log log are missing ({NEWEST} has" in said
    )
    assert "`groupkeeper log verify --dir DIR` checks all" in said
    command(*arguments, "--accept-gap", "1970-01-03")
    (site.log_dir / NEWEST).write_bytes(whole[NEWEST])
    assert "published 1970-01-03" in command(*arguments).err
