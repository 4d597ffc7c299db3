"""Decodes an event of the event log (pure): the fields that a reader of the log needs."""

from __future__ import annotations

from typing import Final

import msgspec

from groupkeeper.storage.backends.journal.driver import LoggedEvent


class EventHead(msgspec.Struct):
    """The fields of an event that ``LoggedEvent`` and ``LogSpan`` need."""

    log_id: str
    seq: int
    ts_ms: int
    group: str
    kind: str
    previous_log_id: str | None = None


decode_head: Final = msgspec.json.Decoder(EventHead).decode


def logged_event(line: bytes) -> LoggedEvent:
    """Decode one line of the event log."""
    head = decode_head(line)
    return LoggedEvent(head.log_id, head.seq, head.ts_ms, (head.group, line))
