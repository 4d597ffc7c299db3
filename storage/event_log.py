"""Reading the event log of a SQLite store: from any process of the same user, at any time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from storage.event_codec import EventDict
from storage.record_codec import decode_payload, payload_events
from storage.sqlite_schema import connect_reader

_BUSY_TIMEOUT_S = 5.0


def read_events(path: str | Path, after_seq: int = 0) -> Iterator[EventDict]:
    """Yield the events above a seq, as one moment shows them. Blocks: not for the loop."""
    with closing(connect_reader(Path(path), _BUSY_TIMEOUT_S)) as connection:
        rows = connection.execute(
            "SELECT first_seq, CAST(payload AS BLOB) FROM log WHERE first_seq + count > ? "
            'ORDER BY "row"',
            (after_seq + 1,),
        )
        for first_seq, data in rows:
            for event in payload_events(first_seq, decode_payload(data)):
                if event["seq"] > after_seq:
                    yield event
