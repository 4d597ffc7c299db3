"""The result of a shard for one input: replies, records, events and work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import Record
from groupkeeper.coordinator.core.work import NO_WORK, Work

Ticket: TypeAlias = object
"""The receiver of an answer. The core returns it unchanged and never looks inside."""

SMALL_RECORD_BYTES: Final = 200
"""The estimated encoded size of a small record, such as ``GroupRemoved``.

The ids in it do not count, although each may have 32,767 bytes. Few steps have many small records,
and these are limited elsewhere. A step of deadlines uses the size of each group, which has its ids
(``Shard.expire``). A step that removes many members at once has the id of the group for each: so
``repeated_id_bytes`` limits how many members a group with a long id has. The ids of members count
in the size of their group. A new target has the id of its group once, and few heartbeats wait for
it.
"""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer to one ticket."""

    ticket: Ticket
    result: Result
    waits: bool = True
    """True if the reply waits until every earlier record of the shard is durable. False only where
    docs/design.md#durable-first allows it.
    """


class Step(msgspec.Struct):
    """The effects of one call of a shard. The records are already applied to the shard that made
    them.

    Most steps have no records or no events. For these an empty tuple is cheaper than a list.
    """

    replies: list[Reply] = msgspec.field(default_factory=list)
    records: list[Record] | tuple[()] = ()
    events: list[Event] | tuple[()] = ()
    record_bytes: int = 0
    """The estimated encoded size of the records. If too many bytes wait for the storage, the
    runtime refuses further requests.
    """
    sets_alarm: bool = False
    """True if the step set a deadline that may be the earliest of the shard."""
    answer: Result | None = None
    """The answer to the request, or None. If it is set, the step has nothing else: no replies,
    records or events. The runtime sends the answer at once, even if earlier records are not durable
    yet. Nearly all requests are heartbeats that change nothing, and this is the cheapest answer to
    them.
    """
    work: Sequence[Work] = NO_WORK
    """Computations to carry out. ``ShardState.begin_work`` adds them. ``Shard.work_done`` gets each
    outcome, unless the shard was loaded again.
    """
