"""What is found out of a file, when it is looked at again, and what counts of what was read."""

from __future__ import annotations

from datetime import date

import pytest
from msgspec.structs import replace

from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.pipeline.log.segment_files import (
    ABSENT,
    MANIFEST,
    NEWER,
    ChangeTicket,
    Lacking,
    Listed,
    ManifestLines,
    Verdict,
    is_new,
    judged,
    lacking,
    lost_problem,
    newest_verdicts,
    parse_name,
    problem_of_events,
    problem_of_file,
)
from groupkeeper.storage.event_log.event_kinds import EVENT_SCHEMA_VERSION
from groupkeeper.storage.event_log.manifest import add, read_manifest, remove
from groupkeeper.storage.event_log.sealing.segment_writer import write_segments
from tests.pipeline.events import DAY_MS, commit

ONE, TWO = date(1970, 1, 1), date(1970, 1, 2)
FILE = "dt=1970-01-01/events-a-1-5.jsonl.gz"
COPY = "late/events-a-1-5.jsonl.gz"


def held(
    first: int, last: int, batch: str = "0", *, file: str = "", sha256: str = "00", **changes
) -> HeldSegment:
    events = last - first + 1
    name = f"events-a-{first}-{last}.jsonl.gz"
    file = file or f"dt=1970-01-01/{name}"
    whole = HeldSegment("a", name, ONE, first, last, events, sum(range(first, last + 1)))
    return whole._replace(batch_id=batch, file=file, sha256=sha256, **changes)


def verdict(problem: str = "", *, file: str = FILE, listed: str = "", batch: str = "1") -> Verdict:
    return Verdict(file, 90, 1000, "00", listed, problem, batch)


@pytest.fixture
def sealed(tmp_path):
    """Two days of a log, of which the first went by retention, and what its manifest says."""
    events = [commit(seq, [("t", 0, seq)], ts_ms=seq * DAY_MS // 4) for seq in range(1, 8)]
    first, second = write_segments(tmp_path, events)
    remove(tmp_path, [first.file])
    add(tmp_path, [replace(second, store="first")])
    with (tmp_path / MANIFEST).open("ab") as file:
        file.write(b'[7]\nnull\n{"file":"dt=1970-01-03/ev')  # a crash cut it off
    return tmp_path


def test_the_manifest_is_read_as_the_daemon_reads_it(sealed):
    theirs, ours = read_manifest(sealed), ManifestLines()
    ours.add("", (sealed / MANIFEST).read_bytes())
    assert ours.removed == theirs.removed != set()
    assert ours.listed == {
        file: Listed(each.file_bytes, each.sha256, each.schema_version, "first")
        for file, each in theirs.segments.items()
    }
    assert len(ours.listed) == 1


def test_what_retention_could_not_read_is_lacking_unless_it_was_read_before(sealed):
    (segment,) = read_manifest(sealed).segments.values()
    add(sealed, [replace(segment, damaged="has 3 bytes")])
    lines = ManifestLines()
    lines.add("", (sealed / MANIFEST).read_bytes())
    (found,) = lacking([], lines, [], {})
    assert found.problem == lost_problem("has 3 bytes")
    assert found.as_expected().problem == f"{segment.file} {found.problem}"
    name = segment.file.rpartition("/")[2]
    day = found.name.day
    held_before = HeldSegment("a", name, day, 4, 7, 4, 22, file=segment.file)
    assert lacking([], lines, [held_before], {}) == []
    lines.add("", b'{"removed":"%s"}' % segment.file.encode())
    assert (lacking([], lines, [], {}), lines.lost) == ([], {})


def test_a_snapshot_that_retention_could_not_read_stood_for_all_before_it():
    file = "dt=1970-01-01/events-a.9-7-9.jsonl.gz"
    expected = Lacking(file, lost_problem("is not there"), parse_name(file)).as_expected()
    assert (expected.log_id, expected.first_seq, expected.last_seq) == ("a", 1, 9)


def test_a_manifest_below_the_folder_speaks_of_its_own_files_and_of_copies_of_them():
    lines = ManifestLines()
    lines.add("north/", b'{"file":"%s","file_bytes":7,"sha256":"ab"}' % FILE.encode())
    assert lines.of(f"north/{FILE}") == lines.of(COPY) == Listed(7, "ab", 0)
    assert lines.of("dt=1970-01-01/events-b-1-5.jsonl.gz") == Listed()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (FILE, ("a", 1, 5, ONE)),
        (f"north/{FILE}", ("a", 1, 5, ONE)),
        (COPY, ("a", 1, 5, None)),
        ("events-a-b.9-10-12.jsonl.gz", ("a-b.9", 10, 12, None)),
        ("dt=1970-01-01/events-a.jsonl.gz", None),
    ],
)
def test_a_path_tells_log_seqs_and_day(file, name):
    assert parse_name(file) == name


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        (Listed(), ""),
        (Listed(90, "00", EVENT_SCHEMA_VERSION), ""),
        (Listed(91, "00"), "has 90 bytes, the manifest says 91"),
        (Listed(90, "ff"), "does not have the checksum in the manifest"),
        (Listed(90, "00", 99), "was written by a newer groupkeeper (schema version 99, this one"),
    ],
)
def test_a_file_is_what_the_manifest_says(listed, problem):
    found = problem_of_file(ChangeTicket(FILE, listed), 90, "00")
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_a_file_of_another_name_is_no_segment():
    ticket = ChangeTicket("dt=1970-01-01/events-mine.jsonl.gz", Listed())
    assert problem_of_file(ticket, 90, "00") == "does not have the name of a segment"


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([held(1, 5)], ""),
        ([], "has no events"),
        ([held(1, 4)], "has events 1 to 4 of log a, but its name says others"),
        ([held(2, 5)], "has events 2 to 5 of log a, but its name says others"),
        ([held(1, 5, log_id="b")], "has events 1 to 5 of log b, but its name says"),
        ([held(1, 5), held(1, 5, log_id="b")], "has events 1 to 5 of log a, b, but its name"),
        ([held(1, 5, dt=TWO)], "has events of 1970-01-02, but is in the folder of another day"),
        ([held(1, 3), held(4, 5, dt=TWO)], "has events of 1970-01-01, 1970-01-02, but"),
        ([held(1, 5, events=4)], "has 4 events, but must have 1 to 5, each once"),
        ([held(1, 5, seq_sum=14)], "has 5 events, but must have 1 to 5, each once"),
    ],
)
def test_the_events_of_a_file_are_those_that_its_path_says(parts, problem):
    found = problem_of_events(FILE, parts)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_a_copy_in_another_folder_may_be_of_any_one_day():
    assert problem_of_events(COPY, [held(1, 5, dt=TWO)]) == ""
    assert problem_of_events(COPY, [held(1, 3), held(4, 5, dt=TWO)]) != ""


@pytest.mark.parametrize(
    ("listed", "known", "expected"),
    [
        (Listed(), None, True),
        (Listed(), verdict(), False),
        (Listed(90, "00"), verdict(listed="00"), False),
        (Listed(90, "00"), verdict(), False),  # a segment gets its line after its name
        (Listed(90, "ff"), verdict(), True),
        (Listed(90, "ff"), verdict("is wrong", listed="ff"), False),
        (Listed(90, "00"), verdict("is wrong", listed="ff"), True),
        (Listed(), verdict("is wrong", listed="ff"), True),
        (Listed(), verdict(listed="00"), False),
        # of a version that is known now, and of one that is not
        (Listed(90, "00", EVENT_SCHEMA_VERSION), verdict(f"{NEWER} (9)", listed="00"), True),
        (Listed(90, "00", 99), verdict(f"{NEWER} (99)", listed="00"), False),
    ],
)
def test_a_file_is_looked_at_again_when_what_is_said_of_it_changes(listed, known, expected):
    assert is_new(FILE, 90, 1000, listed, known) is expected
    assert is_new(FILE, 91, 1000, listed, known)
    assert is_new(FILE, 90, 1001, listed, known)


def test_of_a_file_that_was_read_twice_the_later_counts_whatever_the_order():
    rows = [held(1, 5, "10", sha256="ff"), held(1, 5, "9"), held(6, 9, "9")]
    for each in (rows, rows[::-1]):
        found = judged(each, {})
        assert sorted(found.held) == sorted([rows[0], rows[2]])
        assert found.superseded == [("events-a-1-5.jsonl.gz", "9")]


def test_what_was_read_stands_when_its_file_is_damaged_later():
    for listed in ("", "00"):
        found = judged([held(1, 5)], {FILE: verdict("cannot be read", listed=listed)})
        assert (len(found.held), found.superseded) == (1, [])


def test_what_was_read_does_not_count_when_the_manifest_says_that_it_was_wrong():
    found = judged([held(1, 5)], {FILE: verdict("is wrong", listed="ff")})
    assert found == ([], [("events-a-1-5.jsonl.gz", "0")])


def test_what_was_imported_is_no_file():
    row = held(1, 5)._replace(file="", batch_id="a-dump")
    assert judged([row], {}) == ([row], [])


def test_the_last_verdict_on_a_file_counts():
    assert newest_verdicts([verdict("x", batch="10"), verdict(batch="9")])[FILE].problem == "x"


def test_what_is_listed_and_neither_there_nor_read_is_lacking():
    lines = ManifestLines()
    lines.add("", b'{"file":"%s","file_bytes":7,"sha256":"ab"}' % FILE.encode())
    (found,) = lacking([], lines, [], {})
    assert str(found) == f"{FILE} {ABSENT}"
    expected = found.as_expected()
    assert expected is not None
    assert (expected.first_seq, expected.last_seq, expected.events) == (1, 5, 0)
    assert lacking([FILE], lines, [], {}) == []
    assert lacking([], lines, [held(1, 5)], {}) == []
    lines.add("", b'{"removed":"%s"}' % FILE.encode())
    assert lacking([], lines, [], {}) == []


def test_what_is_there_and_wrong_is_lacking_unless_a_copy_of_it_was_read():
    verdicts = {FILE: verdict("is wrong")}
    (found,) = lacking([FILE], ManifestLines(), [held(1, 5)], verdicts)
    assert str(found) == f"{FILE} is wrong"
    assert lacking([FILE], ManifestLines(), [held(1, 5, file=COPY)], verdicts) == []
    assert lacking([], ManifestLines(), [], verdicts) == []


def test_what_has_no_seqs_or_no_day_and_a_snapshot_are_looked_for_by_nobody():
    for file in ("events-x.jsonl.gz", COPY, "dt=1970-01-01/events-a.9-7-9.jsonl.gz"):
        assert Lacking(file, ABSENT, parse_name(file)).as_expected() is None
