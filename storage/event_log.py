"""Reading the event log of a SQLite store: from any process of the same user, at any time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

from storage.event_codec import EventDict
from storage.job_thread import JobThread
from storage.record_codec import decode_payload, payload_events
from storage.sqlite_schema import connect_reader

_BUSY_TIMEOUT_S = 5.0

_CHUNK_EVENTS = 200


def read_events(path: str | Path, after_seq: int = 0) -> Generator[EventDict, None, None]:
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


async def group_history(path: str | Path, group_id: str) -> AsyncIterator[EventDict]:
    """Yield the events of a group, as one moment shows them; reads the whole log, in a thread."""
    events = _events_of(path, group_id)
    thread = JobThread("event-log-reader")
    try:
        while chunk := await thread.submit(partial(_next_of, events)):
            for event in chunk:
                yield event
    finally:
        thread.submit(events.close)  # a connection of SQLite belongs to the thread that made it
        thread.stop()


def _events_of(path: str | Path, group_id: str) -> Generator[EventDict, None, None]:
    with closing(read_events(path)) as events:
        yield from (event for event in events if event["group"] == group_id)


def _next_of(events: Iterator[EventDict]) -> list[EventDict]:
    return list(islice(events, _CHUNK_EVENTS))
