"""DeleteTopics (20): delete topics of static mode, and with them what was committed for them.

| version | change |
| --- | --- |
| 4 | flexible |
| 5 | error message |
| 6 | a topic is named by name or by id |
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import ChangeTopics, TopicChange
from coordinator.handlers import topic_changes
from coordinator.handlers.packing import begin, finish, topic_id_bytes, wire_count, wire_string
from coordinator.handlers.reading import read
from protocol.codec import uuid_to_topic_id

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

FIRST_FLEXIBLE = 4

_ERROR = struct.Struct(">h")
_THROTTLE = bytes(4)


def handle(exchange: Exchange, services: Services) -> None:
    """Submit what can be asked of us; answered once the topics are durably gone."""
    wire = read(exchange, services)
    if exchange.version >= 6:
        named = [(t.name, uuid_to_topic_id(t.topic_id)) for t in wire.topics]
    else:
        named = [(name, "") for name in wire.topic_names]
    twice = topic_changes.repeated(named)
    judged = [_judge(name, topic_id, twice) for name, topic_id in named]
    if wire.timeout <= 0 and not all(judged):
        entries = [(name or "", topic_id) for name, topic_id in named]
        topic_changes.refuse_all(exchange, entries, ErrorCode.REQUEST_TIMED_OUT, None, render)
        return
    change = ChangeTopics(
        client=exchange.client,
        delete=tuple(
            [
                (name or "", topic_id)
                for (name, topic_id), refused in zip(named, judged, strict=True)
                if refused is None
            ]
        ),
    )
    topic_changes.submit(exchange, services, change, judged, _render_once)


def _judge(
    name: str | None, topic_id: str, twice: frozenset[tuple[str | None, str]]
) -> TopicChange | None:
    if (name is None) == (topic_id == ""):
        return topic_changes.refusal(
            name or "", ErrorCode.INVALID_REQUEST, "Name a topic by name or by id.", topic_id
        )
    if (name, topic_id) in twice:
        return topic_changes.refusal(
            name or "", ErrorCode.INVALID_REQUEST, "Duplicate topic.", topic_id
        )
    return None


def _render_once(changes: list[TopicChange], exchange: Exchange) -> bytes:
    return render(list(dict.fromkeys(changes)), exchange)


def render(changes: list[TopicChange], exchange: Exchange) -> bytes:
    """Render for the version asked."""
    version = exchange.version
    flexible = version >= FIRST_FLEXIBLE
    exchange.error = topic_changes.first_error(changes)
    out = begin(exchange.correlation_id, flexible)
    out += _THROTTLE
    out += wire_count(len(changes), flexible)
    for change in changes:
        out += wire_string(change.name or (None if version >= 6 else ""), flexible)
        if version >= 6:
            out += topic_id_bytes(change.topic_id)
        out += _ERROR.pack(change.error)
        if version >= 5:
            out += wire_string(change.message, flexible)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return finish(out)
