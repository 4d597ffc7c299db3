"""Rewrites the replies of an upstream broker, so that a client sees the addresses of our listeners,
and never an address of the upstream.

The upstream is the Kafka cluster behind the gateway. Each of its brokers has a listener, a port of
ours. Our own node is the coordinator, which clients see as one more broker.

Only the fields that must change are decoded. The bytes of all others are copied as they are, also
tagged fields that no schema knows.

| API | change |
| --- | --- |
| Produce from 10 | the endpoints of new leaders |
| Metadata | the brokers, with our own node; hidden topics are left out |
| FindCoordinator | the address of a coordinator |
| DescribeConfigs | addresses in the configs of brokers are blank |
| DescribeCluster | the brokers, with our own node |
| DescribeTopicPartitions | hidden topics are left out |

A broker that has no listener here is left out of a list of brokers, so a client waits for it as for
a broker that is down. If FindCoordinator leads to such a broker, the client gets
COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.message import (
    ENDS_EARLY,
    Edit,
    WireMessage,
    ends_early,
    reply_of,
)
from groupkeeper.coordinator.handlers.configs.resources import ResourceType
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.packing import PACK_INT16, PACK_INT32
from groupkeeper.protocol.reader import Input
from groupkeeper.protocol.spans import Excerpt, Shape, excerpts, read_tags, written_tags
from groupkeeper.protocol.writer import Row, write_entity

MAX_ELEMENTS: Final = 1_000_000
"""The largest number of array elements that are read in one reply. The replies of a cluster with
half a million partitions have fewer. So no reply blocks the event loop for much longer than such a
reply.
"""

NODE_ENDPOINTS: Final = 0
"""The tag of the endpoints in a Produce reply."""


class View(NamedTuple):
    """The cluster as a client of a listener sees it."""

    node_id: int
    """Our own node, the coordinator of every group."""
    here: Endpoint
    """The address of our own node."""
    brokers: Mapping[int, Endpoint]
    """The address of the listener in front of each upstream broker."""
    hidden_topics: frozenset[str] = frozenset()
    """Topics of ours in the upstream cluster that clients do not see, and cannot change."""
    hidden_topic_ids: frozenset[str] = frozenset()
    """The known ids of hidden topics, for a request that names a topic by id."""


def rewrite(key: int, version: int, reply: bytes, view: View) -> bytes:
    """Return a reply as the client gets it: a whole frame, with its length in front.

    A reply without anything to change is returned as it is. Raises only ProtocolError, if the bytes
    of the upstream are not a valid reply.
    """
    change = _CHANGES.get(key)
    if change is None:
        return reply
    try:
        message = reply_of(key, version, reply, MAX_ELEMENTS)
        edits = change(message, view)
    except ENDS_EARLY:
        raise ends_early(f"a reply of API {key} v{version}") from None
    return message.replaced(edits) if edits else reply


# --- brokers --------------------------------------------------------------------------------------


def _metadata(reply: WireMessage, view: View) -> list[Edit]:
    return [_brokers(reply, "node_id", view), *_without_hidden_topics(reply, view)]


def _describe_cluster(reply: WireMessage, view: View) -> list[Edit]:
    return [_brokers(reply, "broker_id", view)]


def _brokers(reply: WireMessage, id_name: str, view: View) -> Edit:
    """Return the edit of the list of brokers. Our own node is the last one."""
    start = reply.skip_to("brokers")
    kept = _with_addresses(reply.excerpts("brokers"), id_name, view)
    own = Row(
        node_id=view.node_id,
        broker_id=view.node_id,
        host=view.here.host,
        port=view.here.port,
        rack=None,
        is_fenced=False,
    )
    kept.append(bytes(write_entity(reply.shape.fields["brokers"].entity, own)))
    return start, reply.source.position, reply.shape.array(kept)


def _with_addresses(brokers: Iterable[Excerpt], id_name: str, view: View) -> list[bytes]:
    """Return the brokers that have a listener here, each with the address of the listener."""
    kept = []
    for broker in brokers:
        endpoint = view.brokers.get(broker.int32(id_name))
        if endpoint is not None:
            kept.append(broker.replaced(_address(broker.shape, endpoint)))
    return kept


def _address(of: Shape, endpoint: Endpoint) -> dict[str, bytes]:
    return {"host": of.text(endpoint.host), "port": PACK_INT32(endpoint.port)}


def _produce(reply: WireMessage, view: View) -> list[Edit]:
    source = reply.source
    reply.shape.skip_plain(source)
    start = source.position
    tags = read_tags(source) if reply.shape.tags else []
    if all(tag.number != NODE_ENDPOINTS for tag in tags):
        return []
    written = []
    for tag in tags:
        content = reply.frame[tag.start : tag.stop]
        if tag.number == NODE_ENDPOINTS:
            content = _endpoints(reply.shape, content, view)
        written.append((tag.number, content))
    return [(start, source.position, written_tags(written))]


def _endpoints(of: Shape, content: bytes, view: View) -> bytes:
    source = Input(content, 0, MAX_ELEMENTS)
    kept = _with_addresses(excerpts(of, "node_endpoints", source), "node_id", view)
    if source.position != source.end:
        raise ProtocolError("bad_tag_size", "the endpoints do not fill their tag")
    return of.array(kept)


def _find_coordinator(reply: WireMessage, view: View) -> list[Edit]:
    if "coordinators" in reply.shape.fields:
        found = list(reply.excerpts("coordinators"))
    else:
        found = [Excerpt(reply.shape, reply.source)]
    return [(excerpt.start, excerpt.stop, _coordinator(excerpt, view)) for excerpt in found]


def _coordinator(excerpt: Excerpt, view: View) -> bytes:
    if excerpt.int16("error_code") == ErrorCode.NONE:
        endpoint = view.brokers.get(excerpt.int32("node_id"))
        if endpoint is not None:
            return excerpt.replaced(_address(excerpt.shape, endpoint))
        missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
        why = {"error_code": PACK_INT16(missing), "error_message": excerpt.shape.text(missing.name)}
    else:
        why = {}
    return excerpt.replaced(why | {"node_id": PACK_INT32(-1)} | _address(excerpt.shape, _NOWHERE))


_NOWHERE: Final = Endpoint("", -1)
"""The address in an answer without a coordinator, as in Kafka."""


# --- topics and configs ---------------------------------------------------------------------------


def _without_hidden_topics(reply: WireMessage, view: View) -> list[Edit]:
    """Return the edits that cut hidden topics out.

    Nearly all replies name no hidden topic. Then the topics are not read at all.
    """
    frame, source = reply.frame, reply.source
    names = [name.encode() for name in view.hidden_topics]
    if all(frame.find(name, source.position) < 0 for name in names):
        return []
    start = reply.skip_to("topics")
    topics = reply.excerpts("topics")
    count = 0
    cuts = []
    for topic in topics:
        count += 1
        if topic.text("name") in view.hidden_topics:
            cuts.append((topic.start, topic.stop, b""))
    if not cuts:
        return []
    before = Input(frame, start, MAX_ELEMENTS)
    reply.shape.count(before)
    return [(start, before.position, reply.shape.counted(count - len(cuts))), *cuts]


def _describe_configs(reply: WireMessage, _view: View) -> list[Edit]:
    return [
        (result.start, result.stop, _without_addresses(result))
        for result in reply.excerpts("results")
        if result.int8("resource_type") == ResourceType.BROKER
    ]


ADDRESS_CONFIGS: Final = frozenset(
    {
        "advertised.host.name",
        "advertised.listeners",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "host.name",
        "listeners",
        "zookeeper.connect",
    }
)
"""The configs of brokers that contain addresses of the cluster."""


def _without_addresses(broker: Excerpt) -> bytes:
    configs = []
    for config in broker.excerpts("configs", MAX_ELEMENTS):
        if config.text("name") not in ADDRESS_CONFIGS:
            configs.append(config.raw)
            continue
        blank = {"value": config.shape.text("")}
        synonyms = [s.replaced(blank) for s in config.excerpts("synonyms", MAX_ELEMENTS)]
        configs.append(config.replaced(blank | {"synonyms": config.shape.array(synonyms)}))
    return broker.replaced({"configs": broker.shape.array(configs)})


_CHANGES: Final[Mapping[int, Callable[[WireMessage, View], list[Edit]]]] = {
    0: _produce,
    3: _metadata,
    10: _find_coordinator,
    32: _describe_configs,
    60: _describe_cluster,
    75: _without_hidden_topics,
}
"""Maps an API key to the function that returns the edits of a reply."""
