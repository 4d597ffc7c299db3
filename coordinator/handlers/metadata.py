"""Metadata (3): the brokers that clients may use, and the topics that exist
(docs/spec/cluster.md#metadata). In static mode, this server is the only broker.

| version | change |
| --- | --- |
| 0 | an empty array means all topics; from version 1 on, null means all and empty means none |
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
| 13 | one error for the whole reply |

All partitions of all topics look alike here. The encoded partitions of a small topic are cached by
their count. Otherwise an answer with 10,000 topics would block the loop.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from groupkeeper.coordinator.core.cluster.names import topic_name_error
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, ChangeTopicsResult, NewTopic
from groupkeeper.coordinator.handlers.brokers import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    endpoint,
)
from groupkeeper.coordinator.handlers.partitions import LEADER_EPOCH
from groupkeeper.coordinator.handlers.slices import SLICE_ELEMENTS, SlicedReply, Slices
from groupkeeper.protocol.codec import uuid_to_topic_id, write_elements
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.protocol.writer import Row, Written

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Endpoint, Services

TOPIC_IDS = 10
LOOK_UP_BY_ID = 12

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

NO_LEADER = -1
"""Stands for the id of a broker or for an epoch if no leader of the partition is known."""

MAX_KEPT_PARTITIONS = 500
"""The largest topic whose encoded partitions are cached. Larger ones are encoded for each answer.
The cache outlives the topic: 100,000 partitions would need 2.6 MB for each version."""


_INDEX = struct.Struct(">i")
_INDEX_AT = 2
"""Where the partition number begins in an encoded partition of a Metadata response: after the error
code.
"""


class ShownTopic(NamedTuple):
    """The answer for one topic: its id and its number of partitions, or an error."""

    error: ErrorCode
    name: str | None
    topic_id: str
    partitions: int


class _TopicRow(NamedTuple):
    """One topic of the answer. The attributes have the names of Kafka's fields."""

    error_code: ErrorCode
    name: str | None
    topic_id: str
    is_internal: bool
    partitions: Written
    topic_authorized_operations: int


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once, or when the missing topics of the request have been created."""
    wire = exchange.read(services)
    version = exchange.version
    wrong = _refusal(wire, version)
    if wrong is not ErrorCode.NONE:
        exchange.send(_render_refused(wire, exchange, wrong))
        return
    if services.denied:
        exchange.send(_render_denied(wire, exchange, services))
        return
    topics = shown_topics(wire, version, services.topics.image)
    missing = _creatable(topics, wire, version) if services.auto_create_topics else []
    if not missing:

        def send(body: bytearray) -> None:
            written = Written(len(topics), [body])
            exchange.send(render(topics, wire, exchange, services, written))

        _note_unknown(topics, exchange, services)
        slices = _slices(exchange, topics, _leader(services), _operations(wire, version))
        SlicedReply(exchange, services, slices, send).advance()
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
    """Return the topics of the answer, each once: all topics, or the requested ones in their
    order."""
    if _asks_for_all(wire, version):
        return [_known(topic) for topic in image.by_name.values()]
    if version >= LOOK_UP_BY_ID:
        # If the request has an id, names are ignored.
        ids = dict.fromkeys(uuid_to_topic_id(t.topic_id) for t in wire.topics if t.topic_id)
        if ids:
            return [_by_id(image, topic_id) for topic_id in ids]
    return [_by_name(image, name) for name in dict.fromkeys(t.name for t in wire.topics)]


def _asks_for_all(wire: Any, version: int) -> bool:
    return wire.topics is None or (version == 0 and not wire.topics)


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
    """Return the error in the names or ids of the topics; NONE if there is none.

    In versions 10 and 11 a topic with an id, or without a name, is an error. From version 12 on,
    Kafka fails on a topic without a name if no topic has an id.
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
                shown = _known(image.by_name[change.name])  # created by another request
            else:
                shown = topic
            final.append(shown)
        return render(final, wire, exchange, services)

    return render_created


def render(
    topics: list[ShownTopic],
    wire: Any,
    exchange: Exchange,
    services: Services,
    written: Written | None = None,
) -> bytes:
    """Return the answer in the version of the request. ``written`` has the encoded topics, if they
    are encoded already.
    """
    version = exchange.version
    node_id = services.node_id
    exchange.error = next((topic.error for topic in topics if topic.error), ErrorCode.NONE)
    asked_for_cluster = 8 <= version <= 10 and wire.include_cluster_authorized_operations
    return exchange.write(
        brokers=[
            Row(node_id=broker_id, host=at.host, port=at.port, rack=None)
            for broker_id, at in _brokers(exchange, services).items()
        ],
        cluster_id=services.cluster_id,
        controller_id=node_id,
        topics=written or _topics(exchange, topics, _leader(services), _operations(wire, version)),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked_for_cluster else NO_OPERATIONS,
        error_code=ErrorCode.NONE,
    )


def _brokers(exchange: Exchange, services: Services) -> dict[int, Endpoint]:
    others = services.other_brokers(exchange.channel.local_address()[0])
    return {**others, services.node_id: endpoint(exchange, services)}


def _leader(services: Services) -> int:
    return services.node_id if services.leads else NO_LEADER


def _operations(wire: Any, version: int) -> int:
    asked = version >= 8 and wire.include_topic_authorized_operations
    return TOPIC_OPERATIONS if asked else NO_OPERATIONS


def _slices(exchange: Exchange, topics: list[ShownTopic], node_id: int, operations: int) -> Slices:
    last = max(len(topics) - 1, 0) // SLICE_ELEMENTS * SLICE_ELEMENTS
    for start in range(0, last, SLICE_ELEMENTS):
        some = topics[start : start + SLICE_ELEMENTS]
        yield _written_topics(exchange, some, node_id, operations)
    return _written_topics(exchange, topics[last:], node_id, operations)


def _render_refused(wire: Any, exchange: Exchange, error: ErrorCode) -> bytes:
    """Return an answer with the error for every topic, and without brokers
    (MetadataRequest.getErrorResponse).
    """
    exchange.error = error
    topics = [ShownTopic(error, t.name or "", uuid_to_topic_id(t.topic_id), 0) for t in wire.topics]
    return exchange.write(
        brokers=(),
        cluster_id=None,
        controller_id=-1,
        topics=_topics(exchange, topics, -1, NO_OPERATIONS),
        cluster_authorized_operations=NO_OPERATIONS,
        error_code=error,
    )


def _render_denied(wire: Any, exchange: Exchange, services: Services) -> bytes:
    """Return an answer that refuses every topic of the request, because the client has no
    permission. An unknown id is still reported as unknown (KafkaApis.handleTopicMetadataRequest).
    """
    version, error = exchange.version, services.denied
    topics: list[ShownTopic] = []
    if not _asks_for_all(wire, version):
        by_id = version >= LOOK_UP_BY_ID and any(topic.topic_id for topic in wire.topics)
        for topic in shown_topics(wire, version, services.topics.image):
            if not by_id:
                topics.append(ShownTopic(error, topic.name, "", 0))
            elif topic.error is ErrorCode.NONE:
                topics.append(ShownTopic(error, None, topic.topic_id, 0))
            else:
                topics.append(topic)
    written = _topics(exchange, topics, _leader(services), NO_OPERATIONS)
    return render(topics, wire, exchange, services, written)


def _topics(exchange: Exchange, topics: list[ShownTopic], node_id: int, operations: int) -> Written:
    return Written(len(topics), [_written_topics(exchange, topics, node_id, operations)])


def _written_topics(
    exchange: Exchange, topics: list[ShownTopic], node_id: int, operations: int
) -> bytes:
    version = exchange.version
    rows = (
        _TopicRow(
            error,
            name,
            topic_id,
            name in INTERNAL_TOPICS,
            _partitions(version, node_id, partitions),
            # A topic without a name has no operations.
            operations if name is not None else NO_OPERATIONS,
        )
        for error, name, topic_id, partitions in topics
    )
    return exchange.write_part("topics", rows)


def _partitions(version: int, node_id: int, count: int) -> Written:
    if count > MAX_KEPT_PARTITIONS:
        return _written_partitions(version, node_id, count)
    return _kept_partitions(version, node_id, count)


@functools.lru_cache(maxsize=256)
def _kept_partitions(version: int, node_id: int, count: int) -> Written:
    return _written_partitions(version, node_id, count)


def _written_partitions(version: int, node_id: int, count: int) -> Written:
    """Encode the partitions of a topic. This server is the leader of each, at epoch 0, and the only
    replica. With NO_LEADER, the partitions have no leader and no replicas.

    The rows differ only in the index of the partition. So they are first made without indexes. Then
    the indexes are written into them, one byte position of all indexes at a time: 100,000
    partitions must not block the loop.
    """
    has_leader = node_id != NO_LEADER
    only_us = (node_id,) if has_leader else ()
    first = Row(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=0,
        leader_id=node_id,
        leader_epoch=LEADER_EPOCH if has_leader else NO_LEADER,
        replica_nodes=only_us,
        isr_nodes=only_us,
        offline_replicas=(),
    )
    row = write_elements(ApiKey.METADATA, version, "topics.partitions", [first])
    rows = bytearray(row * count)
    indexes = struct.pack(f">{count}i", *range(count))
    for byte in range(_INDEX.size):
        rows[_INDEX_AT + byte :: len(row)] = indexes[byte :: _INDEX.size]
    return Written(count, [rows])
