"""Formats events of the log for people, as one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from groupkeeper.coordinator.cli.plain_text import plain

MAX_PARTITIONS: Final = 6
"""The largest number of partitions of one event that its line names. Further partitions are only
counted."""

BAD, GOOD, CHANGE, QUIET = "red", "green", "cyan", "bright_black"

COLOURS: Final[Mapping[str, str]] = {
    "commit": GOOD,
    "commit_rejected": BAD,
    "member_fenced": BAD,
    "member_evicted": BAD,
    "assignment_failed": BAD,
    "pattern_refused": BAD,
    "offset_expired": BAD,
    "offset_deleted": BAD,
    "group_deleted": BAD,
    "member_join": CHANGE,
    "member_leave": CHANGE,
    "rebalance_start": CHANGE,
    "rebalance_end": CHANGE,
    "assignment": CHANGE,
    "target_assignment": CHANGE,
    "partitions_moved": CHANGE,
    "group_converted": CHANGE,
    "group_created": CHANGE,
    "admin_action": CHANGE,
}
"""The colour of each kind of event; every other kind is grey. See ``colour_of``."""

_KIND_WIDTH = max(map(len, COLOURS))


def moment(ts_ms: int) -> str:
    """Format a time (ms since the epoch) in UTC: ``2026-11-21 20:15:00.000Z``."""
    at = datetime.fromtimestamp(ts_ms / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{ts_ms % 1000:03d}Z"


def line_of(event: Mapping[str, Any], *, with_group: bool) -> tuple[str, str, str]:
    """Return the three parts of an event's line as plain text: its time, its kind padded to a
    column, and its description.
    """
    text = _SAYS.get(event["kind"], _nothing)(event)
    group = f"{event['group'] or '-'}  " if with_group else ""
    return (
        moment(event["ts_ms"]),
        event["kind"].ljust(_KIND_WIDTH),
        plain(f"{group}{text}".rstrip()),
    )


def colour_of(event: Mapping[str, Any]) -> str:
    """Return the colour of an event's line: the colour of its kind, or red for a commit that lowers
    an offset.
    """
    if event["kind"] == "commit" and any(
        row["offset"] < row["previous_offset"]
        for topic in event["topics"]
        for row in topic["partitions"]
    ):
        return BAD
    return COLOURS.get(event["kind"], QUIET)


def _commit(event: Mapping[str, Any]) -> str:
    def shown(row: Mapping[str, Any]) -> str:
        before = row["previous_offset"]
        step = "" if before < 0 else f" ({row['offset'] - before:+d})"
        return f"{row['partition']}={row['offset']}{step}"

    by = _who(event) if event["member_id"] else f"{_who(event)}, no member"
    return f"{_offsets(event['topics'], shown)}  by {by}, generation {event['generation']}"


def _times(event: Mapping[str, Any]) -> str:
    return "" if event["count"] == 1 else f" {event['count']} times"


def _rejected(event: Mapping[str, Any]) -> str:
    return f"{event['error']}{_times(event)}  to {_who(event)}, generation {event['generation']}"


def _lost(event: Mapping[str, Any]) -> str:
    reason = f"{event['reason']}: " if "reason" in event else ""
    return reason + _offsets(event["topics"])


def _snapshot(event: Mapping[str, Any]) -> str:
    stood = _offsets(event["topics"])
    gone = sum(len(topic["partitions"]) for topic in event["lost"])
    return f"at the horizon: {stood or 'nothing'}" + (f"; {gone} removed before" if gone else "")


def _ends(event: Mapping[str, Any]) -> str:
    return _offsets(event["topics"])


def _join(event: Mapping[str, Any]) -> str:
    replaces = f", in place of {event['replaces']}" if event["replaces"] else ""
    return f"{_who(event)} as {event['member_id']}{replaces}{_why(event)}"


def _leave(event: Mapping[str, Any]) -> str:
    return f"{_who(event)} as {event['member_id']}{_why(event)}"


def _start(event: Mapping[str, Any]) -> str:
    return f"{event['reason']} by {event['member_id'] or 'nobody'}, {event['members']} members"


def _end(event: Mapping[str, Any]) -> str:
    awaited = f", did not come back: {', '.join(event['awaited'])}" if event["awaited"] else ""
    protocol = "" if event["group_type"] == "consumer" else ", no protocol"
    if event["protocol_name"]:
        protocol = f", {event['protocol_name']}"
    return (
        f"generation {event['generation']} after {event['duration_ms']} ms, "
        f"{event['members']} members{protocol}{awaited}"
    )


def _assignment(event: Mapping[str, Any]) -> str:
    members = event["partitions"]
    if members is None:
        return f"generation {event['generation']}, of {len(event['opaque_bytes'] or {})} members"
    counts = [
        f"{member}: {sum(map(len, topics.values()))}" for member, topics in sorted(members.items())
    ]
    return f"generation {event['generation']}, partitions of {', '.join(counts) or 'nobody'}"


def _target(event: Mapping[str, Any]) -> str:
    return (
        f"epoch {event['generation']} by {event['assignor']}, "
        f"changed for {event['changed_members']} of {event['members']} members"
    )


def _failed(event: Mapping[str, Any]) -> str:
    return (
        f"{event['reason']}{_times(event)} by {event['assignor']}, epoch {event['generation']}, "
        f"{event['members']} members: {event['detail']}"
    )


def _pattern(event: Mapping[str, Any]) -> str:
    to = f"  to {_who(event)} as {event['member_id']}" if event["member_id"] else ""
    return f"{event['pattern']!r}{_times(event)}: {event['detail']}{to}"


def _moved(event: Mapping[str, Any]) -> str:
    moves = [
        f"{verb} {_topics(event[field])}"
        for verb, field in (("got", "gained_partitions"), ("lost", "lost_partitions"))
        if event[field]
    ]
    return f"{_who(event)} as {event['member_id']} {', '.join(moves)}{_why(event)}"


def _topics(partitions: Mapping[str, list[int]]) -> str:
    return _listed([(topic, str(n)) for topic, numbers in partitions.items() for n in numbers])


def _converted(event: Mapping[str, Any]) -> str:
    return f"from {event['from_type']} to {event['to_type']}, with {event['members']} members"


def _deleted(event: Mapping[str, Any]) -> str:
    return f"{event['reason']}, with {event['offsets']} offsets"


def _log_started(event: Mapping[str, Any]) -> str:
    before = event["previous_log_id"] or "an unknown log"
    return f"{event['reason']}, after event {event['previous_seq']} of {before}"


def _loaded(event: Mapping[str, Any]) -> str:
    return (
        f"shard {event['shard']}: {event['groups']} groups, {event['offsets']} offsets "
        f"in {event['duration_ms']} ms"
    )


def _admin(event: Mapping[str, Any]) -> str:
    return f"{event['action']} {event['target']} {event['detail']}  by {_who(event)}"


def _nothing(event: Mapping[str, Any]) -> str:
    return ""


_SAYS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "commit": _commit,
    "commit_rejected": _rejected,
    "member_fenced": _rejected,
    "member_join": _join,
    "member_leave": _leave,
    "member_evicted": _leave,
    "rebalance_start": _start,
    "rebalance_end": _end,
    "assignment": _assignment,
    "target_assignment": _target,
    "assignment_failed": _failed,
    "pattern_refused": _pattern,
    "partitions_moved": _moved,
    "group_converted": _converted,
    "group_deleted": _deleted,
    "offset_expired": _lost,
    "offset_deleted": _lost,
    "offset_snapshot": _snapshot,
    "end_offset": _ends,
    "shard_loaded": _loaded,
    "log_started": _log_started,
    "admin_action": _admin,
}


def _who(event: Mapping[str, Any]) -> str:
    return f"{event['client_id'] or 'an unnamed client'} at {event['client_host'] or 'no address'}"


def _why(event: Mapping[str, Any]) -> str:
    return f" ({event['reason']})" if event["reason"] else ""


def _value(row: Mapping[str, Any]) -> str:
    return f"{row['partition']}={row['offset']}"


def _offsets(
    topics: list[dict[str, Any]], shown: Callable[[Mapping[str, Any]], str] = _value
) -> str:
    return _listed(
        [(topic["topic"], shown(row)) for topic in topics for row in topic["partitions"]]
    )


def _listed(rows: Sequence[tuple[str, str]]) -> str:
    """Return the texts of the first MAX_PARTITIONS rows, grouped by topic, and the number of the
    other rows. A row is a topic, and the text of one partition.
    """
    named: dict[str, list[str]] = {}
    for topic, text in rows[:MAX_PARTITIONS]:
        named.setdefault(topic, []).append(text)
    text = "; ".join(f"{topic} {' '.join(texts)}" for topic, texts in named.items())
    more = len(rows) - MAX_PARTITIONS
    return f"{text} and {more} more" if more > 0 else text
