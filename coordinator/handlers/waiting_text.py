"""The members and topics that a group waits for, as a message for our own command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

from groupkeeper.coordinator.version import CLI_CLIENT_ID
from groupkeeper.protocol.packing import MAX_STRING_BYTES

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.waiting import Waiting
    from groupkeeper.coordinator.handlers.exchange import Exchange

_T = TypeVar("_T")


def shows_waiting(exchange: Exchange, group_ids: Sized) -> bool:
    """Return True if our own command line, known by its client id, asks about one group.

    For many groups the answer would take too long.
    """
    return exchange.client.client_id == CLI_CLIENT_ID and len(group_ids) == 1


def waiting_text(waiting: Waiting) -> str:
    """Return the members and topics that a group waits for, as JSON for our command line.

    Entries that do not fit into a Kafka string are left out and counted, because cut JSON would be
    invalid.
    """
    awaited = list(_fitting(member._asdict() for member in waiting.awaited))
    topics = list(_fitting(waiting.topics))
    content = {
        "awaited": awaited,
        "awaited_left_out": len(waiting.awaited) - len(awaited),
        "since_ms": waiting.since_ms,
        "until_ms": waiting.until_ms,
        "topics": topics,
        "topics_left_out": len(waiting.topics) - len(topics),
    }
    return json.dumps(content, separators=(",", ":"))


def _fitting(items: Iterable[_T]) -> Iterator[_T]:
    """Yield items as long as their JSON together fits into half of the longest Kafka string. (JSON
    is ASCII here.)"""
    left = MAX_STRING_BYTES // 2 - 200
    for item in items:
        left -= len(json.dumps(item, separators=(",", ":"))) + 1
        if left < 0:
            return
        yield item
