"""Rewritten replies against kio: every version, with random content, and with bad bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from groupkeeper.coordinator.gateway.apis import TABLE, Treatment, treatment
from groupkeeper.coordinator.gateway.rewriting import ADDRESS_CONFIGS, rewrite
from groupkeeper.protocol.codec import response_class
from groupkeeper.protocol.errors import ProtocolError
from tests.helpers.wire.gateway_frames import HERE, VIEW, decoded, framed, unframed
from tests.helpers.wire.wire_entities import (
    FEW,
    encode,
    entities,
    kio_bytes,
    plain,
    replaced,
    sample,
    served_id,
)

REWRITTEN = [
    (key, version)
    for key, api in TABLE.items()
    for version in range(api.min_version, api.max_version + 1)
    if treatment(key, version) is Treatment.REWRITTEN or key in (10, 32)
]


# --- the same changes, made in entities -----------------------------------------------------------


def with_addresses(brokers: Any, id_name: str) -> list[Any]:
    return [
        replace(broker, host=endpoint.host, port=endpoint.port)
        for broker in brokers
        if (endpoint := VIEW.brokers.get(getattr(broker, id_name))) is not None
    ]


def with_own_node(entity: Any, id_name: str) -> dict[str, Any]:
    kind = type(sample(type(entity)).brokers[0])
    fields = {id_name: VIEW.node_id, "host": HERE.host, "port": HERE.port}
    fields |= {"rack": None, "is_fenced": False}
    own = kind(**{name: value for name, value in fields.items() if name in kind.__slots__})
    return {"brokers": (*with_addresses(entity.brokers, id_name), own)}


def without_hidden_topics(entity: Any) -> dict[str, Any]:
    return {"topics": tuple(t for t in entity.topics if t.name not in VIEW.hidden_topics)}


def with_address_of_coordinator(found: Any) -> Any:
    if found.error_code == 0:
        endpoint = VIEW.brokers.get(found.node_id)
        if endpoint is not None:
            return replace(found, host=endpoint.host, port=endpoint.port)
        found = replace(found, error_code=int(ErrorCode.coordinator_not_available))
        if "error_message" in type(found).__slots__:
            found = replace(found, error_message="COORDINATOR_NOT_AVAILABLE")
    return replace(found, node_id=-1, host="", port=-1)


def without_address_configs(result: Any) -> Any:
    return replace(
        result,
        configs=tuple(
            replace(c, value="", synonyms=tuple(replace(s, value="") for s in c.synonyms))
            if c.name in ADDRESS_CONFIGS
            else c
            for c in result.configs
        ),
    )


def changed(key: int, entity: Any) -> Any:
    """What a client must read."""
    match key:
        case 0:
            if not hasattr(entity, "node_endpoints"):
                return entity
            return replace(
                entity, node_endpoints=tuple(with_addresses(entity.node_endpoints, "node_id"))
            )
        case 3:
            return replace(
                entity, **with_own_node(entity, "node_id"), **without_hidden_topics(entity)
            )
        case 10:
            if not hasattr(entity, "coordinators"):
                return with_address_of_coordinator(entity)
            return replace(
                entity, coordinators=tuple(map(with_address_of_coordinator, entity.coordinators))
            )
        case 32:
            broker = 4
            return replace(
                entity,
                results=tuple(
                    without_address_configs(r) if r.resource_type == broker else r
                    for r in entity.results
                ),
            )
        case 60:
            return replace(entity, **with_own_node(entity, "broker_id"))
        case 75:
            return replace(entity, **without_hidden_topics(entity))
    raise AssertionError(key)


def with_likely_content(key: int, entity: Any, data: st.DataObject) -> Any:
    """The entity with values that matter more often than by chance."""
    errors = st.sampled_from([ErrorCode.none, ErrorCode.none, ErrorCode.not_coordinator])
    if key == 32:
        names = st.sampled_from([*sorted(ADDRESS_CONFIGS), "log.dirs"])
        return replace(
            entity,
            results=tuple(
                replace(
                    r,
                    resource_type=data.draw(st.sampled_from([2, 4, 4, 8])),
                    configs=tuple(replace(c, name=data.draw(names)) for c in r.configs),
                )
                for r in entity.results
            ),
        )
    if hasattr(entity, "coordinators"):
        found = tuple(replace(c, error_code=data.draw(errors)) for c in entity.coordinators)
        return replace(entity, coordinators=found)
    if key == 10:
        return replace(entity, error_code=data.draw(errors))
    return entity


@pytest.mark.parametrize("api", REWRITTEN, ids=served_id)
@FEW
@given(data=st.data())
def test_a_client_reads_the_reply_with_the_changes_and_nothing_else(
    api: tuple[int, int], data: st.DataObject
) -> None:
    entity = data.draw(entities(response_class(*api)))
    body = kio_bytes(with_likely_content(api[0], entity, data))

    rewritten = unframed(api, rewrite(*api, framed(api, body), VIEW))

    assert plain(decoded(api, rewritten)) == plain(changed(api[0], decoded(api, body)))


@pytest.mark.parametrize("api", REWRITTEN, ids=served_id)
@FEW
@given(data=st.data())
def test_bad_bytes_of_an_upstream_are_refused_or_copied(
    api: tuple[int, int], data: st.DataObject
) -> None:
    body = bytearray(kio_bytes(data.draw(entities(response_class(*api)))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(body) - 1)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))

    frame = framed(api, bytes(body))
    frame = frame[: len(frame) - data.draw(st.integers(0, 4))]
    try:
        rewritten = rewrite(*api, frame, VIEW)
    except ProtocolError:
        return
    own_node_and_blanks = 1000
    assert len(rewritten) <= len(frame) * 2 + own_node_and_blanks


@pytest.mark.parametrize("api", REWRITTEN, ids=served_id)
def test_a_length_beyond_the_end_reserves_nothing(api: tuple[int, int]) -> None:
    body, marks = encode(sample(response_class(*api)))
    for mark in marks:
        huge = (
            b"\xff\xff\xff\xff\x0f"
            if mark.compact
            else b"\x7f" + b"\xff" * (mark.stop - mark.start - 1)
        )
        frame = framed(api, replaced(body, mark, huge))
        assert outcome(api, frame) in REASONS or len(rewrite(*api, frame, VIEW)) < 10_000, mark


REASONS = {"truncated", "count_beyond_end", "too_many_elements", "bad_tag_size"}


def outcome(api: tuple[int, int], frame: bytes) -> str:
    """The reason why the bytes are refused; "" if they are not."""
    try:
        rewrite(*api, frame, VIEW)
    except ProtocolError as refused:
        return refused.reason
    return ""
