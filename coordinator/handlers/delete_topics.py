"""DeleteTopics (20): delete topics, with their committed offsets. Here topics have no records
(static mode).

| version | change |
| --- | --- |
| 4 | flexible |
| 5 | error message |
| 6 | a topic is named by name or by id |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, TopicChange
from groupkeeper.coordinator.handlers import topic_changes
from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


NOT_NAMED = "Name a topic by name or by id."


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the topics that may be deleted. The answer is sent when the deletion is durable."""
    wire = exchange.read(services)
    if exchange.version >= 6:
        named = [(t.name, uuid_to_topic_id(t.topic_id)) for t in wire.topics]
    else:
        named = [(name, "") for name in wire.topic_names]
    if services.denied:
        topic_changes.refuse_all(exchange, named, services.denied, None, _render_once)
        return
    refusals = [_refusal_of(name, topic_id) for name, topic_id in named]
    twice = topic_changes.repeated(named)
    asks = any(
        one not in twice and refused is None for one, refused in zip(named, refusals, strict=True)
    )
    if wire.timeout <= 0 and asks:
        topic_changes.refuse_all(exchange, named, ErrorCode.REQUEST_TIMED_OUT, None, render)
        return
    change = ChangeTopics(
        client=exchange.client,
        delete=tuple(
            [one for one, refused in zip(named, refusals, strict=True) if refused is None]
        ),
    )
    topic_changes.submit(exchange, services, change, refusals, _render_once)


def _refusal_of(name: str | None, topic_id: str) -> TopicChange | None:
    if (name is None) == (topic_id == ""):
        return topic_changes.refusal(name, ErrorCode.INVALID_REQUEST, NOT_NAMED, topic_id)
    return None


def _render_once(changes: list[TopicChange], exchange: Exchange) -> bytes:
    """Render each topic once. An entry that had both a name and an id, or neither, gets its own
    row.
    """
    topics = dict.fromkeys(change for change in changes if change.message != NOT_NAMED)
    others = (change for change in changes if change.message == NOT_NAMED)
    return render([*topics, *others], exchange)


def render(changes: list[TopicChange], exchange: Exchange) -> bytes:
    """Return the reply frame in the version of the request, and set ``exchange.error``."""
    exchange.error = topic_changes.first_error(changes)
    return exchange.write(
        responses=[
            Row(
                name=change.name,
                topic_id=change.topic_id,
                error_code=change.error,
                error_message=change.message,
            )
            for change in changes
        ],
    )
