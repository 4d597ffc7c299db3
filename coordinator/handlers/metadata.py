"""Metadata (3): ourselves as the one broker, and the topics of the image (spec 5.1).

| version | change |
| --- | --- |
| 0 | an empty array means all topics; from 1 on null does, and empty means none |
| 1 | rack, controller, internal flag |
| 2 | cluster id |
| 3 | throttle time |
| 4 | allow auto-creation |
| 5 | offline replicas |
| 7 | leader epoch |
| 8 | authorized operations: of topics, and (8-10) of the cluster |
| 9 | flexible |
| 10 | topic ids in the reply; a null name or an id in the request is INVALID_REQUEST below 12 |
| 12 | look-up by id |
| 13 | an error for the whole |

All partitions of all topics look alike here, so those of a small topic are packed once for each
number of them: an image of 10,000 topics must not hold the loop.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import ChangeTopics, ChangeTopicsResult, NewTopic
from coordinator.core.topic_names import topic_name_error
from coordinator.handlers.brokers import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, endpoint
from coordinator.handlers.packing import (
    NO_OPERATIONS,
    begin,
    finish,
    topic_id_bytes,
    wire_count,
    wire_string,
)
from coordinator.handlers.partitions import LEADER_EPOCH
from coordinator.handlers.reading import read
from protocol.codec import uuid_to_topic_id

if TYPE_CHECKING:
    from coordinator.core.topic_image import TopicImage, TopicInfo
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

FIRST_FLEXIBLE = 9
TOPIC_IDS = 10
LOOK_UP_BY_ID = 12

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

MAX_KEPT_PARTITIONS = 500
"""Topics with more are packed anew for each answer. What is kept outlives the topic: at 100,000
partitions that was 2.6 MB for each version asked.
"""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_THROTTLE = bytes(4)


class ShownTopic(NamedTuple):
    """One topic of the answer."""

    error: ErrorCode
    name: str | None
    topic_id: str
    partitions: int


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once, or once the topics that are missing were created."""
    wire = read(exchange, services)
    version = exchange.version
    wrong = _refusal(wire, version)
    if wrong is not ErrorCode.NONE:
        exchange.send(_render_refused(wire, exchange, wrong))
        return
    topics = shown_topics(wire, version, services.topics.image)
    missing = _creatable(topics, wire, version) if services.auto_create_topics else []
    if not missing:
        _note_unknown(topics, exchange, services)
        exchange.send(render(topics, wire, exchange, services))
        return
    exchange.render = _after_creation(topics, wire, services)
    services.coordinator.submit(
        ChangeTopics(
            client=exchange.client,
            create=tuple(
                [
                    NewTopic(name, services.num_partitions, services.new_topic_id())
                    for name in missing
                ]
            ),
        ),
        exchange,
    )


def _note_unknown(topics: list[ShownTopic], exchange: Exchange, services: Services) -> None:
    unknown = [
        topic.name
        for topic in topics
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name is not None
    ]
    if unknown:
        known = services.topics.image.by_name
        services.unknown_topics.asked(unknown, exchange.client, known)


def shown_topics(wire: Any, version: int, image: TopicImage) -> list[ShownTopic]:
    """Say which topics the answer shows, each once, in the order asked."""
    if wire.topics is None or (version == 0 and not wire.topics):
        return [_known(topic) for topic in image.by_name.values()]
    if version >= LOOK_UP_BY_ID:
        # If any id is given, names are ignored.
        ids = dict.fromkeys(uuid_to_topic_id(t.topic_id) for t in wire.topics if t.topic_id)
        if ids:
            return [_by_id(image, topic_id) for topic_id in ids]
    return [_by_name(image, name) for name in dict.fromkeys(t.name for t in wire.topics)]


def _known(topic: TopicInfo) -> ShownTopic:
    return ShownTopic(ErrorCode.NONE, topic.name, topic.topic_id, topic.partitions)


def _by_id(image: TopicImage, topic_id: str) -> ShownTopic:
    topic = image.by_id.get(topic_id)
    return _known(topic) if topic else ShownTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id, 0)


def _by_name(image: TopicImage, name: str | None) -> ShownTopic:
    topic = image.by_name.get(name) if name is not None else None
    if topic is not None:
        return _known(topic)
    legal = name is not None and topic_name_error(name) is None
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return ShownTopic(error, name, "", 0)


def _refusal(wire: Any, version: int) -> ErrorCode:
    """Say what is wrong with how topics are named: below 12 an id, or nothing at all. Later Kafka
    stumbles over nothing at all, where no id makes it overlook the names.
    """
    if wire.topics is None or version < TOPIC_IDS:
        return ErrorCode.NONE
    by_nothing = any(topic.name is None for topic in wire.topics)
    by_id = any(topic.topic_id is not None for topic in wire.topics)
    if version < LOOK_UP_BY_ID:
        return ErrorCode.INVALID_REQUEST if by_nothing or by_id else ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if by_nothing and not by_id else ErrorCode.NONE


def _creatable(topics: list[ShownTopic], wire: Any, version: int) -> list[str]:
    if version >= 4 and not wire.allow_auto_topic_creation:
        return []
    return [
        topic.name
        for topic in topics
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name is not None
    ]


def _after_creation(
    topics: list[ShownTopic], wire: Any, services: Services
) -> Callable[[Any, Exchange], bytes]:
    def render_created(result: ChangeTopicsResult, exchange: Exchange) -> bytes:
        created = {change.name: change for change in result.created}
        image = services.topics.image
        final = []
        for topic in topics:
            change = created.get(topic.name or "")
            if change is not None and change.error is ErrorCode.NONE:
                shown = ShownTopic(change.error, change.name, change.topic_id, change.partitions)
            elif change is not None and change.name in image.by_name:
                shown = _known(image.by_name[change.name])  # someone else was faster
            else:
                shown = topic
            final.append(shown)
        return render(final, wire, exchange, services)

    return render_created


def render(
    topics: Iterable[ShownTopic], wire: Any, exchange: Exchange, services: Services
) -> bytes:
    """Render for the version asked."""
    version = exchange.version
    here = endpoint(exchange, services)
    node = services.node_id
    flexible = version >= FIRST_FLEXIBLE
    broker = _INT32.pack(node) + wire_string(here.host, flexible) + _INT32.pack(here.port)
    if version >= 1:
        broker += wire_string(None, flexible)  # rack
    if flexible:
        broker += b"\0"
    out = _begin(exchange, [broker], services.cluster_id, node)
    shown = list(topics)
    exchange.error = next((topic.error for topic in shown if topic.error), ErrorCode.NONE)
    operations = (
        TOPIC_OPERATIONS
        if version >= 8 and wire.include_topic_authorized_operations
        else NO_OPERATIONS
    )
    _pack_topics(out, shown, version, node, operations)
    asked_for_cluster = 8 <= version <= 10 and wire.include_cluster_authorized_operations
    return _end(out, version, CLUSTER_OPERATIONS if asked_for_cluster else NO_OPERATIONS)


def _render_refused(wire: Any, exchange: Exchange, error: ErrorCode) -> bytes:
    """Answer the error on every topic, with no broker (MetadataRequest.getErrorResponse)."""
    version = exchange.version
    exchange.error = error
    out = _begin(exchange, [], None, -1)
    topics = [ShownTopic(error, t.name or "", uuid_to_topic_id(t.topic_id), 0) for t in wire.topics]
    _pack_topics(out, topics, version, -1, NO_OPERATIONS)
    return _end(out, version, NO_OPERATIONS, error)


def _begin(
    exchange: Exchange, brokers: list[bytes], cluster_id: str | None, controller: int
) -> bytearray:
    version = exchange.version
    flexible = version >= FIRST_FLEXIBLE
    out = begin(exchange.correlation_id, flexible)
    if version >= 3:
        out += _THROTTLE
    out += wire_count(len(brokers), flexible)
    for broker in brokers:
        out += broker
    if version >= 2:
        out += wire_string(cluster_id, flexible)
    if version >= 1:
        out += _INT32.pack(controller)
    return out


def _pack_topics(
    out: bytearray, topics: list[ShownTopic], version: int, node: int, operations: int
) -> None:
    flexible = version >= FIRST_FLEXIBLE
    out += wire_count(len(topics), flexible)
    for error, name, topic_id, partitions in topics:
        out += _INT16.pack(error)
        out += wire_string(name, flexible)
        if version >= 10:
            out += topic_id_bytes(topic_id)
        if version >= 1:
            out.append(name in INTERNAL_TOPICS)
        out += _partitions(version, node, partitions)
        if version >= 8:  # what has no name is not asked for what is allowed with it
            out += _INT32.pack(operations if name is not None else NO_OPERATIONS)
        if flexible:
            out.append(0)


def _partitions(version: int, node: int, count: int) -> bytes | bytearray:
    if count > MAX_KEPT_PARTITIONS:
        return _pack_partitions(version, node, count)
    return _kept_partitions(version, node, count)


@functools.lru_cache(maxsize=256)
def _kept_partitions(version: int, node: int, count: int) -> bytes:
    return bytes(_pack_partitions(version, node, count))


def _pack_partitions(version: int, node: int, count: int) -> bytearray:
    """Pack the partitions of a topic: each led by us, at epoch 0, we its only replica.

    All rows are alike but for the index. They are made at once and the indexes written over them, a
    byte of all indexes at a time: 100,000 partitions must not hold the loop.
    """
    flexible = version >= FIRST_FLEXIBLE
    only_us = wire_count(1, flexible) + _INT32.pack(node)
    row = _INT16.pack(ErrorCode.NONE) + _INT32.pack(0) + _INT32.pack(node)
    if version >= 7:
        row += _INT32.pack(LEADER_EPOCH)
    row += only_us + only_us
    if version >= 5:
        row += wire_count(0, flexible)  # offline replicas
    if flexible:
        row += b"\0"
    head = wire_count(count, flexible)
    out = bytearray(head + row * count)
    indexes = struct.pack(f">{count}i", *range(count))
    for byte in range(_INT32.size):
        out[len(head) + _INT16.size + byte :: len(row)] = indexes[byte :: _INT32.size]
    return out


def _end(
    out: bytearray, version: int, cluster_operations: int, error: ErrorCode = ErrorCode.NONE
) -> bytes:
    if 8 <= version <= 10:
        out += _INT32.pack(cluster_operations)
    if version >= 13:
        out += _INT16.pack(error)
    if version >= FIRST_FLEXIBLE:
        out.append(0)
    return finish(out)
