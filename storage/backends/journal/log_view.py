"""The events of one node in a shared store: those in the store's event log, and those in journals.
A *seq* is the sequence number of an event.

A *node* is the identity of a process over its restarts. The events of a node are in a sequence of
logs: each log names the log before it. A store that several nodes have used has several such
sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from groupkeeper.storage.backends.journal.driver import JournalEntry, LoggedEvent, LogSpan
from groupkeeper.storage.event_log.lines import RowLines, row_lines
from groupkeeper.storage.segment_lines import EventDict, decode_line


class LogView(NamedTuple):
    """The events of one node at one moment."""

    spans: Sequence[LogSpan]
    """The ranges of events in the event log of the store, oldest first. No seq is there twice."""
    entries: Sequence[JournalEntry]
    """The entries of the journal with events after those of ``spans``."""
    next_seq: int
    """The seq of the next event of the node."""
    logs: Sequence[str] = ()
    """The ids of the node's logs, newest first. The store may have no event of the oldest log any
    more."""

    @property
    def first_seq(self) -> int:
        """The seq of the first event; ``next_seq`` if there is no event."""
        if self.spans:
            return self.spans[0].first_seq
        return self.entries[0].first_seq if self.entries else self.next_seq

    def log_id_at(self, seq: int) -> str | None:
        """Return the id of the log of an event; None if the view does not have the event."""
        for span in self.spans:
            if span.first_seq <= seq <= span.last_seq:
                return span.log_id
        for entry in self.entries:
            if entry.first_seq <= seq < entry.first_seq + entry.event_count:
                return entry.log_id
        return None


def view_of(
    spans: Iterable[LogSpan], entries: Iterable[JournalEntry], head: str | None, next_seq: int
) -> LogView:
    """Return the events of the node whose last log is ``head``. None: the node has no events.

    ``spans`` are from the event log, ``entries`` from journals, perhaps also those of other nodes.
    Some events may be in both, because a fold moves them.
    """
    by_log = {span.log_id: span for span in spans}
    journal = [entry for entry in entries if entry.event_count]
    begins = _begins(journal)
    logs: list[str] = []
    at = head
    while at is not None and at not in logs:
        logs.append(at)
        at = by_log[at].previous_log_id if at in by_log else begins.get(at)
    chain: list[LogSpan] = []
    below_seq: int | None = None
    for log_id in logs:  # newest first
        span = by_log.get(log_id)
        own = [entry for entry in journal if entry.log_id == log_id]
        if span is not None:
            # The store was set back if the next log begins below the end of this log. The events
            # from there on were abandoned.
            last_seq = span.last_seq if below_seq is None else min(span.last_seq, below_seq - 1)
            if last_seq >= span.first_seq:
                chain.insert(0, span._replace(last_seq=last_seq))
            below_seq = span.first_seq
        elif own:
            below_seq = own[0].first_seq
    done_seq = chain[-1].last_seq if chain else 0
    later = [
        entry
        for entry in journal
        if entry.log_id in logs and entry.first_seq + entry.event_count - 1 > done_seq
    ]
    return LogView(chain, later, next_seq, logs)


def without_holes(view: LogView) -> LogView:
    """Return the view without the events before its last gap in the seqs. A reader reports all
    events before ``first_seq`` as missing, and so it reports the gap too.
    """
    parts = [(each.first_seq, each.last_seq) for each in view.spans]
    parts += [(each.first_seq, each.first_seq + each.event_count - 1) for each in view.entries]
    below_seq = view.next_seq
    for first_seq, last_seq in sorted(parts, key=lambda part: part[1], reverse=True):
        if last_seq + 1 < below_seq:
            break
        below_seq = min(below_seq, first_seq)
    spans = [each for each in view.spans if each.last_seq >= below_seq]
    entries = [each for each in view.entries if each.first_seq >= below_seq]
    return view._replace(spans=spans, entries=entries)


def _begins(entries: Iterable[JournalEntry]) -> Mapping[str, str | None]:
    """Return the previous log of each log that begins in an entry."""
    begins: dict[str, str | None] = {}
    for entry in entries:
        if entry.log_id not in begins:
            _, line = next(iter(row_lines(entry.first_seq, entry.payload).lines))
            begins[entry.log_id] = decode_line(line).get("previous_log_id")
    return begins


class JournalRow(NamedTuple):
    """Events that follow each other in one log and have the same time.

    The number of such a row is the seq of its last event.
    """

    logged: Sequence[LoggedEvent]

    @property
    def row(self) -> int:
        return self.logged[-1].seq

    @property
    def first_seq(self) -> int:
        return self.logged[0].seq

    @property
    def last_seq(self) -> int:
        return self.logged[-1].seq

    def lines(self) -> RowLines:
        first = self.logged[0]
        return RowLines(first.log_id, first.seq, first.ts_ms, [each.line for each in self.logged])

    def events(self, since_ms: int = 0) -> Iterator[EventDict]:
        if self.logged[0].ts_ms >= since_ms:
            for each in self.logged:
                yield decode_line(each.line[1])


def rows_of_events(events: Iterable[LoggedEvent]) -> Iterator[JournalRow]:
    """Yield the events of one log as rows. Successive events with the same time are one row."""
    for _, same in groupby(events, key=lambda event: event.ts_ms):
        yield JournalRow([*same])


def rows_of_entry(entry: JournalEntry, after_seq: int) -> Iterator[JournalRow]:
    """Yield one row with the events of an entry above a seq. Yield nothing if there are none."""
    found = row_lines(entry.first_seq, entry.payload)
    logged = [
        LoggedEvent(found.log_id, seq, found.ts_ms, line)
        for seq, line in enumerate(found.lines, entry.first_seq)
        if seq > after_seq
    ]
    if logged:
        yield JournalRow(logged)
