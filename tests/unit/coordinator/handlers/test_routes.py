"""Who may ask what, and who answers what is not served."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.routes import DENIED, Operation, Resource, Routes, not_served
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.coordinator.handlers.table import APIS_SERVED, ROUTES
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.wire.handling import (
    ORDERS_UUID,
    FakeCoordinator,
    begin_frame,
    decode,
    errors_in,
    make_services,
)
from tests.helpers.wire.raw_client import API_KEYS
from tests.helpers.wire.wire_entities import kio_bytes, sample, served, served_id

NAMES = {key: name for name, key in API_KEYS.items()}

VALID: dict[int, dict[str, Any]] = {
    ApiKey.FETCH: {"session_epoch": 0},
    ApiKey.LIST_OFFSETS: {"isolation_level": 0},
    ApiKey.FIND_COORDINATOR: {"key_type": 0},
    ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 1},
}
"""What a request of which every number is 3 must say instead."""

CONFIG_TYPES = {2: 29, 4: 31, 32: 30}
"""Of a topic, a broker, a group; and what is answered to who may not."""


def denied(session: Session, operation: Operation, resource: Resource) -> bool:
    return False


def request_of(key: int, version: int) -> Any:
    """A request in which every array has two elements, and every text and id is there."""
    entity = sample(load_request_schema(key, version))
    fields = {n: v for n, v in VALID.get(key, {}).items() if hasattr(entity, n)}
    if key == ApiKey.METADATA and hasattr(entity.topics[0], "topic_id"):
        topic_id = ORDERS_UUID if version >= 12 else None
        fields["topics"] = tuple(replace(topic, topic_id=topic_id) for topic in entity.topics)
    if key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        resource = entity.resources[0]
        fields["resources"] = tuple(
            replace(resource, resource_type=kind, **_no_configs(resource)) for kind in CONFIG_TYPES
        )
    return replace(entity, **fields)


def _no_configs(resource: Any) -> dict[str, Any]:
    return {"configs": ()} if hasattr(resource, "configs") else {}


def frame_of(key: int, version: int) -> bytes:
    schema = load_request_schema(key, version)
    header = schema.__header_schema__
    values = {"request_api_key": key, "request_api_version": version, "correlation_id": 77}
    buffer = bytearray()
    buffer += kio_bytes(header(client_id="app", **values))
    buffer += kio_bytes(request_of(key, version))
    return struct.pack(">i", len(buffer)) + bytes(buffer)


@pytest.mark.parametrize("api", served(), ids=served_id)
def test_who_may_not_is_told_so_in_every_version_and_nothing_is_asked(api: tuple[int, int]) -> None:
    key, version = api
    services = make_services(lambda _: pytest.fail("the coordinator was asked"))
    _, channel = begin_frame(services, frame_of(key, version), Routes(APIS_SERVED, denied))
    assert channel.failures == []
    (reply,) = channel.replies
    told = {code for code in errors_in(decode(NAMES[key], version, reply)) if code}
    resource = APIS_SERVED[ApiKey(key)].resource
    if resource is None or key == ApiKey.LIST_GROUPS:
        assert told == set()  # for everyone; and no group is listed to who may see none
    elif key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        assert told == set(CONFIG_TYPES.values())
    else:
        assert told == {DENIED[resource]}


@pytest.mark.parametrize("version", [0, 9, 13])
def test_who_may_not_see_topics_is_told_of_none_when_asking_for_all(version: int) -> None:
    schema = load_request_schema(3, version)
    entity = replace(sample(schema), topics=None if version else ())
    header = kio_bytes(
        schema.__header_schema__(
            request_api_key=3, request_api_version=version, correlation_id=77, client_id="app"
        )
    )
    body = header + kio_bytes(entity)
    frame = struct.pack(">i", len(body)) + body
    _, channel = begin_frame(make_services(), frame, Routes(APIS_SERVED, denied))
    assert decode("metadata", version, channel.replies[0])["topics"] == []


@pytest.mark.parametrize("version", [12, 13])
def test_who_may_not_see_a_topic_learns_no_name_by_its_id(version: int) -> None:
    schema = load_request_schema(3, version)
    (topic, *_) = sample(schema).topics
    unknown = UUID(int=4_711)
    asked = tuple(
        replace(topic, topic_id=topic_id, name=None) for topic_id in (ORDERS_UUID, unknown)
    )
    header = kio_bytes(
        schema.__header_schema__(
            request_api_key=3, request_api_version=version, correlation_id=77, client_id="app"
        )
    )
    body = header + kio_bytes(replace(sample(schema), topics=asked))
    frame = struct.pack(">i", len(body)) + body
    _, channel = begin_frame(make_services(), frame, Routes(APIS_SERVED, denied))
    told = decode("metadata", version, channel.replies[0])["topics"]
    assert [(t["error_code"], t["name"], t["topic_id"]) for t in told] == [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, str(ORDERS_UUID)),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, str(unknown)),
    ]


def test_it_is_asked_once_who_speaks_and_what_for() -> None:
    asked: list[Any] = []

    def allowed(session: Session, operation: Operation, resource: Resource) -> bool:
        asked.append((session, operation, resource))
        return True

    services = make_services(lambda _: ErrorCode.NONE)
    routes = Routes(APIS_SERVED, allowed)
    _, channel = begin_frame(services, frame_of(ApiKey.HEARTBEAT, 4), routes)
    assert asked == [(channel.session, Operation.READ, Resource.GROUP)]
    assert channel.session.principal == "User:ANONYMOUS"
    assert isinstance(services.coordinator, FakeCoordinator)
    assert len(services.coordinator.requests) == 1
    assert decode("heartbeat", 4, channel.replies[0])["error_code"] == 0


def test_without_anyone_to_ask_nothing_stands_before_a_handler() -> None:
    assert ROUTES[11, 9] is APIS_SERVED[ApiKey.JOIN_GROUP].handle


@pytest.mark.parametrize("asked", [(999, 0), (22, 0), (12, 5), (12, -1), (0, 2)])
def test_what_is_not_served_closes_the_connection(asked: tuple[int, int]) -> None:
    frame = struct.pack(">ihhih", 13, *asked, 77, 3) + b"app"
    with pytest.raises(ProtocolError, match=r"unknown_api|unsupported_version"):
        begin_frame(make_services(), frame)
    assert ROUTES[asked] is not_served


def test_another_fallback_is_given_what_is_not_served_whole() -> None:
    def elsewhere(exchange: Exchange, services: Services) -> None:
        assert exchange.frame[exchange.body_at :] == b"body"
        exchange.send(b"theirs")

    routes = Routes(APIS_SERVED, fallback=elsewhere)
    frame = struct.pack(">ihhih", 17, 22, 5, 77, 3) + b"appbody"
    exchange, channel = begin_frame(make_services(), frame, routes)
    assert (exchange.client.client_id, channel.replies) == ("app", [b"theirs"])
    # ApiVersions says what we serve, whoever answers the rest.
    _, channel = begin_frame(make_services(), struct.pack(">ihhihx", 10, 18, 99, 77, -1), routes)
    assert decode("api_versions", 0, channel.replies[0])["error_code"] == 35


def test_the_error_of_a_denied_request_names_the_resource() -> None:
    assert {resource.name: error.name for resource, error in DENIED.items()} == {
        resource.name: f"{resource.name}_AUTHORIZATION_FAILED" for resource in Resource
    }
