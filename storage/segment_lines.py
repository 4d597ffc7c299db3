"""An event as one line of a segment, and back (pure).

As the flat dict of ``docs/reference/events.md``, but for commits, which are most of what there is:
a topic's partitions stand there as ``rows``, lists without names, in the order of ``ROW_FIELDS``.
They are half as long so, and the very bytes that the loop encoded for the store can be copied into
the file (``storage.event_log.lines``). Files of schema version 1 have ``partitions`` with names
there as well.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

EventDict: TypeAlias = dict[str, Any]

EventLine: TypeAlias = tuple[str, bytes]
"""The group of an event, and its line with its newline."""

COMMIT_KIND: Final = "commit"

ROW_FIELDS: Final = ("partition", "offset", "previous_offset", "leader_epoch", "metadata")
"""What a row of a commit holds."""

_COMMIT: Final = b'"kind":"commit"'
_NAMED_PARTITIONS: Final = b'"partitions":['

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(EventDict).decode


def encode_line(event: EventDict) -> bytes:
    """Write an event as a segment holds it, with its newline."""
    if event["kind"] == COMMIT_KIND:
        event = event | {"topics": [_with_rows(topic) for topic in event["topics"]]}
    return _encode(event) + b"\n"


def decode_line(line: bytes) -> EventDict:
    """Read a line of any version. Raises ``msgspec.DecodeError`` for what is no event."""
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
    """Whether a line is a commit of schema version 1, whose partitions have named fields.
    All other lines are the same in versions 1 and 2.
    """
    # in a text each quote has a backslash before it, so no text holds either
    return _COMMIT in line and _NAMED_PARTITIONS in line


def _is_event(line: EventDict) -> bool:
    """Whether it has what every reader rests on."""
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
