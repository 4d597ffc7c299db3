"""What a shard gives back for one input: replies, records and events, and nothing else."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import Record

Ticket: TypeAlias = object
"""Whose answer it is. The core hands it back untouched and never looks inside."""

SMALL_RECORD_BYTES: Final = 200
"""About what a record takes that names one thing."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer to one ticket."""

    ticket: Ticket
    result: Result
    waits: bool = True
    """Held until every earlier record of the shard is durable; False only where
    docs/design.md#durable-first allows it.
    """


class Step(msgspec.Struct):
    """The effects of one call. Records were already applied to the shard that made them."""

    replies: list[Reply] = msgspec.field(default_factory=list)
    records: list[Record] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)
    record_bytes: int = 0
    """About what the records take when they are encoded: bounds what waits for a storage."""
    sets_alarm: bool = False
    """A deadline was set that may be the earliest."""
