"""Converts a group to the layout of the classic consumers (pure).

``ids/INSTANCE`` has the subscription of a member, ``owners/TOPIC/PARTITION`` the member that owns a
partition, and ``offsets/TOPIC/PARTITION`` the committed offset. Names that the server or the
layout refuses are left out: no other program could use them either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.core.consumer_records import ConsumerGroupRecord, SavedConsumerMember
from groupkeeper.coordinator.core.records import GroupRecord, SavedGroup, SavedMember, SavedOffset
from groupkeeper.protocol.consumer_protocol import (
    ConsumerProtocolError,
    decode_assignment,
    decode_subscription,
)

MAX_PARTS: Final = 100_000
"""The largest number of topics and partitions of one member. A member with more is left out."""

_CONSUMERS: Final = "consumer"
"""The protocol type of consumers. We can read only the subscriptions and assignments of consumers.
"""


IsName: TypeAlias = Callable[[str], bool]
"""Returns True if a name can be used in the layout, unchanged."""


class MirroredSubscription(NamedTuple):
    """The subscription that the mirror shows for a member, in the form of the classic consumers."""

    pattern: str
    """``static``: topics are names. ``white_list``: they are one regular expression."""
    topics: tuple[str, ...]


class MirroredGroup(NamedTuple):
    """The nodes of one group, by their paths below the group's node."""

    ids: Mapping[str, MirroredSubscription]
    """The member id -> the subscription of the member."""
    owners: Mapping[str, str]
    """The path TOPIC/PARTITION -> the id of the member that owns the partition."""
    offsets: Mapping[str, int]
    """The path TOPIC/PARTITION -> the committed offset."""


NO_NODES: Final = MirroredGroup({}, {}, {})


def mirrored_group(
    group: SavedGroup, topic_names: Mapping[str, str], is_name: IsName
) -> MirroredGroup:
    """Return the nodes to mirror for a group. ``topic_names`` maps topic ids to names."""
    ids: dict[str, MirroredSubscription] = {}
    owners: dict[str, str] = {}
    for member_id, subscribed, owned in _members(group, topic_names):
        if is_name(member_id):
            ids[member_id] = subscribed
            owners |= dict.fromkeys(_places(owned, is_name), member_id)
    return MirroredGroup(ids, owners, dict(_offsets(group.offsets, is_name)))


def registration(subscribed: MirroredSubscription, timestamp_s: int) -> bytes:
    """Return the JSON that describes a member, with the fields in the order of kazoo-go."""
    fields = {
        "pattern": subscribed.pattern,
        "subscription": dict.fromkeys(sorted(subscribed.topics), 1),
        "timestamp": timestamp_s,
        "version": 1,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


_Owned = Iterable[tuple[str, Iterable[int]]]
"""Topics and their partitions."""


def _members(
    group: SavedGroup, topic_names: Mapping[str, str]
) -> Iterator[tuple[str, MirroredSubscription, _Owned]]:
    match group.metadata:
        case GroupRecord(protocol_type=protocol_type, members=members):
            for member in members if protocol_type == _CONSUMERS else ():
                yield from _classic(member)
        case ConsumerGroupRecord(subscriptions=subscriptions, members=consumers):
            for saved in consumers:
                names = subscriptions[saved.subscription]
                subscribed = _subscribed(names, saved.fields.subscribed_topic_regex)
                yield saved.fields.member_id, subscribed, [*_current(saved, topic_names)]
        case None:
            return  # only offsets


def _classic(member: SavedMember) -> Iterator[tuple[str, MirroredSubscription, _Owned]]:
    try:
        topics = decode_subscription(member.subscription, MAX_PARTS).topics
        owned = decode_assignment(member.assignment, MAX_PARTS).partitions
    except ConsumerProtocolError:
        return  # the bytes are not those of a consumer, or it has no assignment yet
    yield member.member_id, MirroredSubscription("static", tuple(topics)), owned.items()


def _subscribed(names: tuple[str, ...], regex: str | None) -> MirroredSubscription:
    return (
        MirroredSubscription("static", names)
        if names or not regex
        else MirroredSubscription("white_list", (regex,))
    )


def _current(
    saved: SavedConsumerMember, topic_names: Mapping[str, str]
) -> Iterator[tuple[str, list[int]]]:
    for partitions in (saved.current.assigned, saved.current.revoking):
        for topic_id, epochs in partitions.items():
            if topic_id in topic_names:
                yield topic_names[topic_id], [partition for partition, _ in epochs]


def _places(owned: _Owned, is_name: IsName) -> Iterator[str]:
    for topic, partitions in owned:
        if is_name(topic):
            for partition in partitions:
                yield f"{topic}/{partition}"


def _offsets(
    offsets: Mapping[str, Mapping[int, SavedOffset]], is_name: IsName
) -> Iterator[tuple[str, int]]:
    for topic, rows in offsets.items():
        if is_name(topic):
            for partition, saved in rows.items():
                yield f"{topic}/{partition}", saved.offset
