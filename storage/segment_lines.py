"""Encode an event as one line of a segment, and decode it (pure). A segment is a file of the event
log.

A line is the flat dict of ``docs/reference/events.md`` as JSON. Commits, which are most of the
events, differ in one field. The partitions of a topic are in ``rows``: lists without names, in the
order of ``ROW_FIELDS``. That halves the length of a line. It also lets ``storage.event_log.lines``
copy the bytes that were encoded for the store.

In files of schema version 1, commits too have ``partitions`` with names.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

EventDict: TypeAlias = dict[str, Any]

EventLine: TypeAlias = tuple[str, bytes]
"""The id of an event's group, and the event as a line with its newline."""

COMMIT_KIND: Final = "commit"

ROW_FIELDS: Final = ("partition", "offset", "previous_offset", "leader_epoch", "metadata")
"""The names of the values in a row, in order. A row is one partition of a commit."""

_COMMIT: Final = b'"kind":"commit"'
_NAMED_PARTITIONS: Final = b'"partitions":['

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(EventDict).decode


def encode_line(event: EventDict) -> bytes:
    """Return an event as a line of a segment, with its newline."""
    if event["kind"] == COMMIT_KIND:
        event = event | {"topics": [_with_rows(topic) for topic in event["topics"]]}
    return _encode(event) + b"\n"


def decode_line(line: bytes) -> EventDict:
    """Decode a line of any version. Raises ``msgspec.DecodeError`` if it is not an event."""
    event = _decode(line)
    if not _is_event(event):
        raise msgspec.ValidationError("a field that every event has is missing, or of another type")
    if event["kind"] == COMMIT_KIND:
        try:
            event["topics"] = [_with_names(topic) for topic in event["topics"]]
        except (KeyError, TypeError, ValueError) as error:
            raise msgspec.ValidationError(
                f"its topics are not those of a commit: {error!r}"
            ) from error
    return event


def is_line_of_version_1(line: bytes) -> bool:
    """Return True for a commit of schema version 1, whose partitions have named fields.

    All other lines are the same in versions 1 and 2.
    """
    # no JSON string contains these bytes: a quote in a string has a backslash before it
    return _COMMIT in line and _NAMED_PARTITIONS in line


def _is_event(line: EventDict) -> bool:
    """Return True if the decoded line has the fields that every reader needs."""
    get = line.get
    return (
        isinstance(get("seq"), int)
        and isinstance(get("ts_ms"), int)
        and isinstance(get("log_id"), str)
        and isinstance(get("kind"), str)
        and isinstance(get("group"), str)
    )


def _with_rows(topic: dict[str, Any]) -> dict[str, Any]:
    rows = [[partition[name] for name in ROW_FIELDS] for partition in topic["partitions"]]
    return {"topic": topic["topic"], "topic_id": topic["topic_id"], "rows": rows}


def _with_names(topic: dict[str, Any]) -> dict[str, Any]:
    if "rows" not in topic:
        return topic
    partitions = [dict(zip(ROW_FIELDS, row, strict=True)) for row in topic["rows"]]
    return {"topic": topic["topic"], "topic_id": topic["topic_id"], "partitions": partitions}
