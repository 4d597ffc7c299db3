"""OffsetFetch.

See docs/spec/offsets.md#fetch; Kafka's KafkaApis and OffsetMetadataManager.fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.records import NO_OFFSET, SavedOffset
from groupkeeper.coordinator.core.requests.offsets import (
    FetchedPartition,
    FetchedTopic,
    FetchTopic,
    OffsetFetch,
    OffsetFetchResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket
from groupkeeper.coordinator.core.stored_topics import (
    LARGE_BYTES,
    StoredTopics,
    Unstable,
    without_unstable,
)

_NO_PARTITIONS: Final[dict[int, SavedOffset]] = {}
_NONE: Final = ErrorCode.NONE
"""A local name for the loops: looking up an enum member costs 70 ns."""


@handles(OffsetFetch)
def fetch_offsets(
    shard: ShardState, group: Group | None, request: OffsetFetch, ticket: Ticket
) -> None:
    """Read offsets. An absent group, topic or partition is not an error: it has no offsets.

    See docs/spec/offsets.md#fetch.
    """
    offsets: dict[str, dict[int, SavedOffset]] = {}
    if group is not None:
        offsets = group.offsets
        if request.member_id is not None or request.member_epoch >= 0:
            error = group.fetch_error(request)
            if error:
                shard.reply(ticket, OffsetFetchResult(error))
                return
    unstable: Unstable | None = None
    if request.require_stable and shard.pendings.by_id:
        unstable = shard.pendings.unstable(request.group_id)
    asked = request.topics
    topics: Collection[FetchedTopic]
    if asked is not None:
        named = _named(shard, offsets, asked, by_id=request.by_topic_id)
        topics = without_unstable(named, unstable) if unstable else named
    elif group is not None and _is_large(group):
        topics = StoredTopics(shard.image, offsets, unstable, by_id=request.by_topic_id)
    else:
        stored = _all_stored(shard.image, offsets, by_id=request.by_topic_id)
        topics = without_unstable(stored, unstable) if unstable else stored
    shard.reply(ticket, OffsetFetchResult(_NONE, topics))


def _is_large(group: Group) -> bool:
    return group.offset_bytes + group.offset_metadata_bytes > LARGE_BYTES


def _named(
    shard: ShardState,
    offsets: dict[str, dict[int, SavedOffset]],
    topics: list[FetchTopic],
    *,
    by_id: bool,
) -> list[FetchedTopic]:
    fetched: list[FetchedTopic] = []
    unknown: list[FetchedTopic] = []
    for name, topic_id, partitions in topics:
        info = shard.find_topic(name, topic_id, by_id=by_id)
        if info is None and by_id:
            nothing = [_nothing(p, ErrorCode.UNKNOWN_TOPIC_ID) for p in partitions]
            unknown.append((name, topic_id, nothing))
            continue
        if info is None:
            # By name the topic need not exist: its offsets are returned as long as they are stored.
            known_name, known_id = name, ""
        else:
            known_name, known_id, _ = info
        stored = offsets.get(known_name, _NO_PARTITIONS)
        fetched.append((known_name, known_id, _fetched(stored, known_id, partitions)))
    return fetched + unknown if unknown else fetched


def _fetched(
    stored: dict[int, SavedOffset], topic_id: str, partitions: list[int]
) -> list[FetchedPartition]:
    # Any: the numbers are only passed on. With int, mypyc would unpack and pack each one.
    numbers: list[Any] = partitions
    result: list[tuple[Any, Any, Any, Any, Any]] = []
    none: Any = _NONE
    for partition in numbers:
        offset: Any = stored.get(partition)
        if offset is None or (offset.topic_id != topic_id and offset.topic_id and topic_id):
            # There is none, or it belongs to a deleted topic of the same name
            # (docs/spec/edge-cases.md#edge-69).
            result.append(_nothing(partition, none))
        else:
            result.append((partition, offset.offset, offset.leader_epoch, offset.metadata, none))
    return result


def _nothing(partition: int, error: ErrorCode) -> FetchedPartition:
    return partition, NO_OFFSET, -1, "", error


def _all_stored(
    image: TopicImage, offsets: dict[str, dict[int, SavedOffset]], *, by_id: bool
) -> list[FetchedTopic]:
    fetched: list[FetchedTopic] = []
    for name, stored in offsets.items():
        info = image.by_name.get(name)
        if by_id and info is None:
            continue
        topic_id = "" if info is None else info.topic_id
        partitions: list[FetchedPartition] = [
            (partition, o.offset, o.leader_epoch, o.metadata, _NONE)
            for partition, o in stored.items()
            if not (by_id and o.topic_id and o.topic_id != topic_id)
        ]
        if partitions:
            fetched.append((name, topic_id, partitions))
    return fetched
