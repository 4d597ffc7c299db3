"""Divides requests of which we answer one part, and a broker answers the other part.

Such a request may name groups, our own node or hidden topics, and also other resources. Our own
node is the coordinator, which clients see as one more broker. Hidden topics are topics that clients
do not see and must not change, such as the journal of transactions.

| API | our part |
| --- | --- |
| FindCoordinator | groups; also share groups, which are refused |
| DescribeConfigs, IncrementalAlterConfigs | groups, and our own node |
| AlterConfigs | the same, refused: it would reset every config that it does not name |
| ListConfigResources | groups, and our own node |
| AlterConfigs, IncrementalAlterConfigs | also hidden topics, refused |
| DeleteTopics, DeleteRecords, CreatePartitions | hidden topics, refused |

Each part is a whole frame with the header of the request. The two replies become one reply: first
the results of the broker, then ours. Refused names are in neither part. Their results are added at
the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway import rewriting
from groupkeeper.coordinator.gateway.message import WireMessage, checked, reply_of, request_of
from groupkeeper.coordinator.gateway.rewriting import View, rewrite
from groupkeeper.coordinator.handlers.configs.resources import ResourceType
from groupkeeper.protocol.codec import read_request, uuid_to_topic_id, write_elements
from groupkeeper.protocol.packing import raw_topic_id
from groupkeeper.protocol.spans import Excerpt
from groupkeeper.protocol.writer import Row

FIND_COORDINATOR: Final = 10
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
CREATE_PARTITIONS: Final = 37
INCREMENTAL_ALTER_CONFIGS: Final = 44
LIST_CONFIG_RESOURCES: Final = 74

TRANSACTION: Final = 1
"""The key type of FindCoordinator for a coordinator of transactions."""

MAX_ELEMENTS: Final = 20_000
"""The largest number of elements of all arrays in one request. It equals the default of
``kafka.max_request_elements``.
"""

NOT_INCREMENTAL: Final = (
    "AlterConfigs would reset every config that it does not name. Change configs of groups with "
    "IncrementalAlterConfigs."
)

HIDDEN: Final = (
    "Offsets in transactions are recorded in this topic, and their loss cannot be mended. So no "
    "client may change it through groupkeeper. An administrator can do it at the brokers."
)

NO_WATERMARK: Final = -1
"""DeleteRecordsResponse.INVALID_LOW_WATERMARK."""

Merge = Callable[[bytes | None, bytes], bytes]
"""Returns the reply for the client. The arguments are our reply (None if no part was ours), and the
reply of the broker."""


class Division(NamedTuple):
    """The parts of a request, as whole frames. At least one of them is not None."""

    ours: bytes | None
    theirs: bytes | None
    merge: Merge | None = None
    """If None, there is only one part. Its reply is the reply for the client. A reply of the broker
    is rewritten as usual.
    """


def divide(key: int, version: int, frame: bytes, view: View) -> Division:
    """Return the parts of a request. Raises ProtocolError if its bytes are invalid."""
    what = f"a request of API {key} v{version}"
    return checked(lambda: _DIVIDE[key](version, frame, view), what)


# --- FindCoordinator ------------------------------------------------------------------------------


def _find_coordinator(version: int, frame: bytes, _view: View) -> Division:
    if version == 0:
        return Division(frame, None)
    request = request_of(FIND_COORDINATOR, version, frame, MAX_ELEMENTS)
    at = request.skip_to("key_type")
    return Division(None, frame) if frame[at] == TRANSACTION else Division(frame, None)


# --- configs of resources -------------------------------------------------------------------------


def _resources(key: int, version: int, frame: bytes, view: View) -> Division:
    request = request_of(key, version, frame, MAX_ELEMENTS)
    start = request.skip_to("resources")
    ours: list[Excerpt] = []
    theirs: list[Excerpt] = []
    refused: list[Row] = []
    for resource in request.excerpts("resources"):
        if _is_ours(resource, view):
            if key == ALTER_CONFIGS:
                refused.append(_refused(resource, ErrorCode.INVALID_REQUEST, NOT_INCREMENTAL))
            else:
                ours.append(resource)
        elif key != DESCRIBE_CONFIGS and _is_hidden_topic(resource, view):
            refused.append(_refused(resource, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN))
        else:
            theirs.append(resource)
    if not ours and not refused:
        return Division(None, frame)
    if not theirs and not refused:
        return Division(frame, None)
    return Division(
        _with_only(request, start, ours) if ours else None,
        _with_only(request, start, theirs),
        _merging(key, version, view, refused),
    )


def _is_ours(resource: Excerpt, view: View) -> bool:
    kind = resource.int8("resource_type")
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return resource.text("resource_name") == str(view.node_id)
    return kind == ResourceType.GROUP


def _is_hidden_topic(resource: Excerpt, view: View) -> bool:
    kind = resource.int8("resource_type")
    return kind == ResourceType.TOPIC and resource.text("resource_name") in view.hidden_topics


def _refused(resource: Excerpt, error: ErrorCode, why: str) -> Row:
    return Row(
        error_code=error,
        error_message=why,
        resource_type=resource.int8("resource_type"),
        resource_name=resource.text("resource_name") or "",
    )


def _with_only(request: WireMessage, start: int, elements: Iterable[Excerpt]) -> bytes:
    array = request.shape.array([element.raw for element in elements])
    return request.replaced([(start, request.source.position, array)])


# --- replies with more results --------------------------------------------------------------------


def _merging(key: int, version: int, view: View, refused: list[Row]) -> Merge:
    """Return a function that adds our results and then ``refused`` to the broker's reply."""
    refusals = write_elements(key, version, _RESULTS[key], refused)

    def merge(ours: bytes | None, theirs: bytes) -> bytes:
        count, raw = 0, b""
        if ours is not None:
            mine = reply_of(key, version, ours, rewriting.MAX_ELEMENTS)
            count, raw = checked(lambda: mine.elements(_RESULTS[key]), "a reply of ours")
        reply = rewrite(key, version, theirs, view)
        return _with_more(key, version, reply, count + len(refused), raw + refusals)

    return merge


_RESULTS: Final[Mapping[int, str]] = {
    DELETE_TOPICS: "responses",
    DELETE_RECORDS: "topics",
    DESCRIBE_CONFIGS: "results",
    ALTER_CONFIGS: "responses",
    CREATE_PARTITIONS: "results",
    INCREMENTAL_ALTER_CONFIGS: "responses",
}
"""API key -> the name of the array of results in the reply."""


def _with_more(key: int, version: int, reply: bytes, count: int, raw: bytes) -> bytes:
    """Return ``reply`` with ``count`` more results. ``raw`` has their encoded bytes."""

    def added() -> bytes:
        name = _RESULTS[key]
        message = reply_of(key, version, reply, rewriting.MAX_ELEMENTS)
        start = message.skip_to(name)
        has, theirs = message.elements(name)
        array = message.shape.counted(has + count) + theirs + raw
        return message.replaced([(start, message.source.position, array)])

    return checked(added, f"a reply of API {key} v{version}")


# --- topics ---------------------------------------------------------------------------------------


def _topics(key: int, version: int, frame: bytes, view: View) -> Division:
    """Refuse changes of hidden topics. Nearly all requests name none, and are then not decoded."""
    names = [name.encode() for name in view.hidden_topics]
    ids = [raw_topic_id(topic_id) for topic_id in view.hidden_topic_ids]
    if not any(name in frame for name in names + ids):
        return Division(None, frame)
    request = request_of(key, version, frame, MAX_ELEMENTS)
    if "topic_names" in request.shape.fields:
        return _names_of_topics(version, request, view)
    start = request.skip_to("topics")
    theirs: list[Excerpt] = []
    refused: list[Row] = []
    for topic in request.excerpts("topics"):
        name, topic_id = topic.text("name"), uuid_to_topic_id(topic.uuid("topic_id"))
        if name in view.hidden_topics or topic_id in view.hidden_topic_ids:
            refused.append(_refused_topic(name, topic_id, _refused_partitions(key, topic)))
        else:
            theirs.append(topic)
    if not refused:
        return Division(None, frame)
    rest = _with_only(request, start, theirs)
    return Division(None, rest, _merging(key, version, view, refused))


def _names_of_topics(version: int, request: WireMessage, view: View) -> Division:
    """Divide a DeleteTopics below version 6, which has names of topics and no ids."""
    start = request.source.position
    asked = read_request(DELETE_TOPICS, version, request.frame, start, MAX_ELEMENTS)
    refused = [_refused_topic(name) for name in asked.topic_names if name in view.hidden_topics]
    if not refused:
        return Division(None, request.frame)
    rest = [request.shape.text(n) for n in asked.topic_names if n not in view.hidden_topics]
    request.elements("topic_names")
    frame = request.replaced([(start, request.source.position, request.shape.array(rest))])
    return Division(None, frame, _merging(DELETE_TOPICS, version, view, refused))


def _refused_topic(name: str | None, topic_id: str = "", partitions: Iterable[Row] = ()) -> Row:
    return Row(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message=HIDDEN,
        partitions=partitions,
    )


def _refused_partitions(key: int, topic: Excerpt) -> list[Row]:
    if key != DELETE_RECORDS:
        return []
    return [
        Row(
            partition_index=partition.int32("partition_index"),
            low_watermark=NO_WATERMARK,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        for partition in topic.excerpts("partitions", MAX_ELEMENTS)
    ]


# --- ListConfigResources --------------------------------------------------------------------------


def _list_config_resources(version: int, frame: bytes, view: View) -> Division:
    if version == 0:
        return Division(None, frame)  # only client metrics
    request = request_of(LIST_CONFIG_RESOURCES, version, frame, MAX_ELEMENTS)
    request.skip_to("resource_types")
    _, types = request.elements("resource_types")
    asked = set(types)  # an int8 is one byte
    if asked == {ResourceType.GROUP}:
        return Division(frame, None)
    ours = frame if not asked or asked & _OUR_RESOURCES else None
    return Division(ours, frame, partial(_merged_resources, version, view))


_OUR_RESOURCES: Final = frozenset({int(ResourceType.GROUP), int(ResourceType.BROKER)})


def _merged_resources(version: int, view: View, ours: bytes | None, theirs: bytes) -> bytes:
    return checked(
        lambda: _with_our_resources(version, view, ours, theirs),
        f"a reply of ListConfigResources v{version}",
    )


def _with_our_resources(version: int, view: View, ours: bytes | None, theirs: bytes) -> bytes:
    key = LIST_CONFIG_RESOURCES
    reply = reply_of(key, version, theirs, rewriting.MAX_ELEMENTS)
    start = reply.skip_to("config_resources")
    kept = [
        resource.raw
        for resource in reply.excerpts("config_resources")
        if not _is_hidden(resource, view)
    ]
    stop = reply.source.position
    if ours is not None:
        mine = reply_of(key, version, ours, rewriting.MAX_ELEMENTS)
        kept += [
            resource.raw
            for resource in mine.excerpts("config_resources")
            if resource.int8("resource_type") in _OUR_RESOURCES
        ]
    return reply.replaced([(start, stop, reply.shape.array(kept))])


def _is_hidden(resource: Excerpt, view: View) -> bool:
    """Return True for groups of the upstream, and for topics that clients do not see."""
    kind = resource.int8("resource_type")
    if kind == ResourceType.TOPIC:
        return resource.text("resource_name") in view.hidden_topics
    return kind == ResourceType.GROUP


_DIVIDE: Final[Mapping[int, Callable[[int, bytes, View], Division]]] = {
    FIND_COORDINATOR: _find_coordinator,
    DELETE_TOPICS: partial(_topics, DELETE_TOPICS),
    DELETE_RECORDS: partial(_topics, DELETE_RECORDS),
    DESCRIBE_CONFIGS: partial(_resources, DESCRIBE_CONFIGS),
    ALTER_CONFIGS: partial(_resources, ALTER_CONFIGS),
    CREATE_PARTITIONS: partial(_topics, CREATE_PARTITIONS),
    INCREMENTAL_ALTER_CONFIGS: partial(_resources, INCREMENTAL_ALTER_CONFIGS),
    LIST_CONFIG_RESOURCES: _list_config_resources,
}
"""Maps an API key to the function that divides a request."""
