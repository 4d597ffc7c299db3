"""Requests that may name groups beside other things: a part is ours, and a part is the broker's.

| API | ours |
| --- | --- |
| FindCoordinator | groups; also share groups, which are refused |
| DescribeConfigs, IncrementalAlterConfigs | groups, and our own node |
| AlterConfigs | the same, refused: it would reset every config that it does not name |
| ListConfigResources | groups, and our own node |

Each part is a whole frame with the header of the request. The two replies become one: the results
of the broker, then ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway import rewriting
from groupkeeper.coordinator.gateway.message import WireMessage, checked, reply_of, request_of
from groupkeeper.coordinator.gateway.rewriting import View, rewrite
from groupkeeper.coordinator.handlers.configs.resources import ResourceType
from groupkeeper.protocol.codec import write_elements
from groupkeeper.protocol.spans import Excerpt
from groupkeeper.protocol.writer import Row

FIND_COORDINATOR: Final = 10
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
INCREMENTAL_ALTER_CONFIGS: Final = 44
LIST_CONFIG_RESOURCES: Final = 74

TRANSACTION: Final = 1
"""The key type of a coordinator of transactions."""

MAX_ELEMENTS: Final = 20_000
"""Elements of all arrays in one request, as in ``limits.max_request_elements``."""

NOT_INCREMENTAL: Final = (
    "AlterConfigs would reset every config that it does not name. Change configs of groups with "
    "IncrementalAlterConfigs."
)

Merge = Callable[[bytes | None, bytes], bytes]
"""Returns the reply for the client, from our reply (None if no part was ours) and the broker's."""


class Division(NamedTuple):
    """The parts of a request, as whole frames. At least one of them is not None."""

    ours: bytes | None
    theirs: bytes | None
    merge: Merge | None = None
    """None: the only reply is that of the client, and a reply of the broker is rewritten."""


def divide(key: int, version: int, frame: bytes, view: View) -> Division:
    """Divide a request. Raises ProtocolError if its bytes are invalid."""
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
    for resource in request.excerpts("resources"):
        (ours if _is_ours(resource, view) else theirs).append(resource)
    if not ours:
        return Division(None, frame)
    rest = _with_only(request, start, theirs)
    if key == ALTER_CONFIGS:
        return Division(None, rest, _refusing(version, ours, view))
    if not theirs:
        return Division(frame, None)
    merge = partial(_merged_results, key, version, view)
    return Division(_with_only(request, start, ours), rest, merge)


def _is_ours(resource: Excerpt, view: View) -> bool:
    kind = resource.int8("resource_type")
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return resource.text("resource_name") == str(view.node_id)
    return kind == ResourceType.GROUP


def _with_only(request: WireMessage, start: int, resources: list[Excerpt]) -> bytes:
    array = request.shape.array([resource.raw for resource in resources])
    return request.replaced([(start, request.source.position, array)])


def _merged_results(key: int, version: int, view: View, ours: bytes | None, theirs: bytes) -> bytes:
    assert ours is not None, "a merge without our part"
    mine = reply_of(key, version, ours, rewriting.MAX_ELEMENTS)
    count, raw = checked(lambda: mine.elements(_RESULTS[key]), "a reply of ours")
    return _with_more(key, version, rewrite(key, version, theirs, view), count, raw)


_RESULTS: Final[Mapping[int, str]] = {
    DESCRIBE_CONFIGS: "results",
    ALTER_CONFIGS: "responses",
    INCREMENTAL_ALTER_CONFIGS: "responses",
}
"""The array of results in the reply of an API."""


def _refusing(version: int, ours: list[Excerpt], view: View) -> Merge:
    """Return the merge that adds a refusal for each of these resources."""
    rows = [
        Row(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=NOT_INCREMENTAL,
            resource_type=resource.int8("resource_type"),
            resource_name=resource.text("resource_name") or "",
        )
        for resource in ours
    ]
    raw = write_elements(ALTER_CONFIGS, version, "responses", rows)

    def merge(_ours: bytes | None, theirs: bytes) -> bytes:
        return _with_more(
            ALTER_CONFIGS, version, rewrite(ALTER_CONFIGS, version, theirs, view), len(rows), raw
        )

    return merge


def _with_more(key: int, version: int, reply: bytes, count: int, raw: bytes) -> bytes:
    """Return a reply with more results, which are encoded already."""

    def added() -> bytes:
        name = _RESULTS[key]
        message = reply_of(key, version, reply, rewriting.MAX_ELEMENTS)
        start = message.skip_to(name)
        has, theirs = message.elements(name)
        array = message.shape.counted(has + count) + theirs + raw
        return message.replaced([(start, message.source.position, array)])

    return checked(added, f"a reply of API {key} v{version}")


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
    DESCRIBE_CONFIGS: partial(_resources, DESCRIBE_CONFIGS),
    ALTER_CONFIGS: partial(_resources, ALTER_CONFIGS),
    INCREMENTAL_ALTER_CONFIGS: partial(_resources, INCREMENTAL_ALTER_CONFIGS),
    LIST_CONFIG_RESOURCES: _list_config_resources,
}
"""By API key: the function that divides a request."""
