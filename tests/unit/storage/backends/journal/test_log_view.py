"""What a reader sees of one node's log: ranges of the event log, then entries of the journal."""

from __future__ import annotations

import pytest

from groupkeeper.storage.backends.journal.driver import JournalEntry, LogSpan
from groupkeeper.storage.backends.journal.log_view import LogView, without_holes


def span(log_id: str, first_seq: int, last_seq: int) -> LogSpan:
    return LogSpan(log_id, None, first_seq, last_seq, 0)


def entry(log_id: str, first_seq: int, count: int) -> JournalEntry:
    return JournalEntry(first_seq, first_seq, count, log_id, 0, b"")


VIEW = LogView(
    [span("one", 3, 5), span("two", 6, 7)], [entry("two", 8, 2), entry("three", 10, 1)], 11
)


def test_the_log_of_each_event_is_found_and_of_no_other():
    found = {seq: VIEW.log_id_at(seq) for seq in range(1, 13)}
    logs = [None] * 2 + ["one"] * 3 + ["two"] * 4 + ["three"] + [None] * 2
    assert found == dict(enumerate(logs, 1))


@pytest.mark.parametrize(
    ("view", "first_seq"),
    [
        (VIEW, 3),
        (VIEW._replace(spans=VIEW.spans[1:]), 6),
        (VIEW._replace(spans=VIEW.spans[:1]), 8),
        (VIEW._replace(entries=VIEW.entries[1:]), 10),
        (VIEW._replace(entries=[]), 11),
        (LogView([], [], 11), 11),
    ],
)
def test_a_log_begins_after_its_last_hole(view: LogView, first_seq: int):
    assert without_holes(view).first_seq == first_seq


def test_a_range_over_another_one_is_no_hole():
    view = LogView([span("one", 1, 9), span("two", 4, 5)], [], 10)
    assert without_holes(view) == view
