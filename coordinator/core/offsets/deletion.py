"""OffsetDelete and DeleteGroups. The log keeps the last value of each deleted offset.

See docs/spec/offsets.md#delete and docs/spec/administration.md#delete-groups. A deletion that is
too large for one step is done in portions:

- The client sends one DeleteGroups. The runtime submits it again until nothing is left
  (``runtime.tickets.Whole``).
- For an OffsetDelete the client receives COORDINATOR_LOAD_IN_PROGRESS, and retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, TypeAlias

from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    GroupDeleted,
    OffsetDeleted,
    of_client,
)
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.groups.lost_offsets import (
    OFFSET_BYTES,
    Portion,
    StoredOffset,
    lost_topics,
)
from groupkeeper.coordinator.core.offsets.ends import held_end
from groupkeeper.coordinator.core.offsets.pending import drop_pending
from groupkeeper.coordinator.core.records import PartitionEnd
from groupkeeper.coordinator.core.requests.admin import DeleteGroup, PartlyDeleted
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete, OffsetDeleteResult
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket

Rows: TypeAlias = list[tuple[int, ErrorCode]]
"""Partitions of one topic, each with its result."""

MAX_DELETED_BYTES: Final = 8 * 1024 * 1024
"""The largest number of encoded bytes that one step of an OffsetDelete may delete: about 25,000
offsets, which take 40 ms of the event loop.
"""


MAX_GROUP_BYTES: Final = 512 * 1024
"""The largest number of encoded bytes of one group that one step of a DeleteGroups may delete. One
iteration of the event loop may delete several groups.
"""

MAX_LOGGED_BYTES: Final = 128 * 1024 * 1024
"""While a group's offsets are larger than this, the events of its deletion leave out the metadata.

This is twice the default of ``storage.max_group_bytes``. Version 0.1.0 had no such limit. Its
largest groups have more than 1 GB of metadata. A busy disk needs a minute to write these events,
and the client stops waiting.
"""


@handles(DeleteGroup)
def delete_group(
    shard: ShardState, group: Group | None, request: DeleteGroup, ticket: Ticket
) -> None:
    """Delete an Empty group with all of its offsets, pending offsets and pending member ids. Of a
    large group, delete one portion of its offsets and answer ``PartlyDeleted``.
    """
    if group is None:
        shard.reply(ticket, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if not group.is_empty():
        shard.reply(ticket, ErrorCode.NON_EMPTY_GROUP)
        return
    lost = list(islice(group.stored_offsets(), MAX_GROUP_BYTES // OFFSET_BYTES + 1))
    most_bytes = MAX_GROUP_BYTES
    if group.offset_bytes + group.offset_metadata_bytes > MAX_LOGGED_BYTES:
        lost = [(topic, at, stored.without_metadata()) for topic, at, stored in lost]
        most_bytes //= 4  # counting the deleted metadata takes as long as writing the rest
    fits = _portion(shard, group, lost, most_bytes)
    if len(fits) < len(lost):
        _remove(shard, group, fits, request.client, "group_deleted")
        shard.reply(ticket, PartlyDeleted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    ends = _held_ends(shard, lost)
    shard.record_group_removed(group)
    for end in ends:
        shard.record(end)
    if lost:
        _add_lost_event(shard, group, lost, request.client, "group_deleted")
    shard.event(
        GroupDeleted(
            group_id=request.group_id,
            generation_id=group.epoch(),
            group_type=group.group_type,
            **of_client(request.client),
            api="DeleteGroups",
            reason="deleted",
            offsets=len(lost),
        )
    )
    shard.reply(ticket, ErrorCode.NONE)


@handles(OffsetDelete)
def delete_offsets(
    shard: ShardState, group: Group | None, request: OffsetDelete, ticket: Ticket
) -> None:
    """Delete offsets, each with its own error. Deleting an offset that never existed succeeds.

    See docs/spec/edge-cases.md#edge-79.
    """
    error = _group_error(group, request.group_id)
    if error is not ErrorCode.NONE:
        shard.reply(ticket, OffsetDeleteResult(error))
        return
    assert group is not None, "an absent group is an error"
    unknown, checked = _check(shard, group, request)
    lost: dict[tuple[str, int], StoredOffset] = {}
    for topic, rows in checked:
        for partition, error in rows:
            stored = group.offsets.get(topic, {}).get(partition)
            if error is ErrorCode.NONE and stored is not None:
                lost[topic, partition] = (topic, partition, stored)
    if lost:
        going = list(lost.values())
        fits = _portion(shard, group, going, MAX_DELETED_BYTES)
        _remove(shard, group, fits, request.client, "deleted")
        if len(fits) < len(going):
            shard.reply(ticket, OffsetDeleteResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
    dropped = {
        (topic, partition)
        for topic, rows in checked
        for partition, error in rows
        if error is ErrorCode.NONE
    }
    drop_pending(shard, group, lambda topic, _, partition: (topic, partition) in dropped)
    shard.reply(ticket, OffsetDeleteResult(ErrorCode.NONE, _merged(unknown, checked)))


def _group_error(group: Group | None, group_id: str) -> ErrorCode:
    if group_id == "":
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return group.offset_delete_error()


def _check(
    shard: ShardState, group: Group, request: OffsetDelete
) -> tuple[dict[str, Rows], list[tuple[str, Rows]]]:
    """Return the errors of the partitions that do not exist, by topic, and then the results of the
    other partitions.
    """
    unknown: dict[str, Rows] = {}
    checked: list[tuple[str, Rows]] = []
    for topic, partitions in request.topics:
        info = shard.find_topic(topic, "", by_id=False)
        count = 0 if info is None else info.partitions
        known = [p for p in partitions if shard.image.accepts_any or 0 <= p < count]
        if info is None or len(known) < len(partitions):
            missing = [p for p in partitions if not 0 <= p < count]
            rows = [(p, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for p in missing]
            unknown.setdefault(topic, []).extend(rows)
        if known:
            subscribed = group.subscribes_to(topic)
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            checked.append((topic, [(p, error) for p in known]))
    return unknown, checked


def _merged(
    unknown: dict[str, Rows], checked: Sequence[tuple[str, Rows]]
) -> tuple[tuple[str, Rows], ...]:
    """Merge the results: first the partitions that do not exist, and each topic once.

    If all partitions exist, the results keep the order of the request (Kafka:
    OffsetDeleteResponse.Builder.merge).
    """
    if not unknown:
        return tuple(checked)
    for topic, rows in checked:
        unknown.setdefault(topic, []).extend(rows)
    return tuple(unknown.items())


def _portion(
    shard: ShardState, group: Group, lost: Sequence[StoredOffset], most_bytes: int
) -> Sequence[StoredOffset]:
    # the step writes the pending offsets again, without the deleted ones
    pending_bytes = shard.pendings.group_bytes(group.group_id)
    most_bytes = min(shard.limits.max_step_bytes - pending_bytes, most_bytes)
    return Portion(len(lost), most_bytes).take(group.group_id, lost)


def _remove(
    shard: ShardState, group: Group, lost: Sequence[StoredOffset], client: Client, reason: str
) -> None:
    ends = _held_ends(shard, lost)
    shard.record_removed(group, lost)
    for end in ends:
        shard.record(end)
    _add_lost_event(shard, group, lost, client, reason)


def _held_ends(shard: ShardState, lost: Sequence[StoredOffset]) -> list[PartitionEnd]:
    ends = (held_end(shard, o.topic_id, partition, o.offset) for _, partition, o in lost)
    return [end for end in ends if end is not None]


def _add_lost_event(
    shard: ShardState, group: Group, lost: Sequence[StoredOffset], client: Client, reason: str
) -> None:
    shard.event(
        OffsetDeleted(
            group_id=group.group_id,
            generation_id=group.epoch(),
            group_type=group.group_type,
            **of_client(client),
            api="DeleteGroups" if reason == "group_deleted" else "OffsetDelete",
            topics=lost_topics(lost),
            reason=reason,
        )
    )
