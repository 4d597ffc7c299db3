"""Divided requests and merged replies against kio, in every version."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.apis import TABLE, Treatment
from groupkeeper.coordinator.gateway.rewriting import rewrite
from groupkeeper.coordinator.gateway.splitting import NOT_INCREMENTAL, divide
from groupkeeper.protocol.codec import request_class, response_class
from groupkeeper.protocol.errors import ProtocolError
from tests.helpers.wire.gateway_frames import (
    VIEW,
    decoded,
    decoded_request,
    framed,
    framed_request,
    unframed,
)
from tests.helpers.wire.wire_entities import FEW, entities, kio_bytes, plain, served_id

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32

SPLIT = [
    (key, version)
    for key, api in TABLE.items()
    for version in range(api.min_version, api.max_version + 1)
    if api.treatment is Treatment.SPLIT
]
OF_RESOURCES = [api for api in SPLIT if api[0] in (32, 33, 44)]
LISTING = (74, 1)


def request_of(api: tuple[int, int], data: st.DataObject) -> Any:
    """A random request, with types of resources that matter."""
    entity = data.draw(entities(request_class(*api)))
    kinds = st.sampled_from([TOPIC, BROKER, LOGGER, METRICS, GROUP, GROUP])
    if hasattr(entity, "resources"):
        names = st.sampled_from(["orders", "1", str(VIEW.node_id)])
        return replace(
            entity,
            resources=tuple(
                replace(r, resource_type=data.draw(kinds), resource_name=data.draw(names))
                for r in entity.resources
            ),
        )
    if hasattr(entity, "key_type"):
        return replace(entity, key_type=data.draw(st.sampled_from([0, 1, 2])))
    if hasattr(entity, "resource_types"):
        return replace(entity, resource_types=tuple(data.draw(st.lists(kinds, max_size=3))))
    return entity


def is_ours(resource: Any) -> bool:
    if resource.resource_type in (BROKER, LOGGER):
        return bool(resource.resource_name == str(VIEW.node_id))
    return bool(resource.resource_type == GROUP)


@pytest.mark.parametrize("api", OF_RESOURCES, ids=served_id)
@FEW
@given(data=st.data())
def test_every_resource_goes_to_exactly_one_side(api: tuple[int, int], data: st.DataObject) -> None:
    request = request_of(api, data)
    frame = framed_request(api, kio_bytes(request))
    ours, theirs, merge = divide(*api, frame, VIEW)

    mine = tuple(r for r in request.resources if is_ours(r))
    others = tuple(r for r in request.resources if not is_ours(r))
    if api[0] == 33:
        assert ours is None
        assert (merge is not None) == bool(mine)
    else:
        assert (ours is not None) == bool(mine)
        assert (merge is not None) == bool(mine and others)
    if ours is not None:
        assert plain(decoded_request(api, ours)) == plain(replace(request, resources=mine))
    if theirs is not None:
        assert plain(decoded_request(api, theirs)) == plain(replace(request, resources=others))
    assert theirs is not None or not others


@pytest.mark.parametrize("api", OF_RESOURCES, ids=served_id)
@FEW
@given(data=st.data())
def test_the_results_of_both_sides_become_one_reply(
    api: tuple[int, int], data: st.DataObject
) -> None:
    request_type = request_class(*api)
    sample = data.draw(entities(request_type).filter(lambda request: len(request.resources) >= 2))
    first, second, *_ = sample.resources
    request = replace(
        sample,
        resources=(
            replace(first, resource_type=GROUP, resource_name="app"),
            replace(second, resource_type=TOPIC),
        ),
    )
    ours, theirs, merge = divide(*api, framed_request(api, kio_bytes(request)), VIEW)
    assert merge is not None
    replies = entities(response_class(*api))
    their_reply = framed(api, kio_bytes(data.draw(replies)))
    our_reply = None if ours is None else framed(api, kio_bytes(data.draw(replies)))

    merged = decoded(api, unframed(api, merge(our_reply, their_reply)))

    name = "results" if api[0] == 32 else "responses"
    rewritten = decoded(api, unframed(api, rewrite(*api, their_reply, VIEW)))
    expected = list(getattr(rewritten, name))
    if our_reply is not None:
        expected += getattr(decoded(api, unframed(api, our_reply)), name)
    else:
        assert theirs is not None
        refused = getattr(merged, name)[-1]
        assert (refused.error_code, refused.error_message, refused.resource_name) == (
            ErrorCode.INVALID_REQUEST,
            NOT_INCREMENTAL,
            "app",
        )
        expected.append(refused)
    assert plain(merged) == plain(replace(rewritten, **{name: tuple(expected)}))


@FEW
@given(data=st.data())
def test_a_listing_has_the_groups_of_ours_and_everything_else_of_the_broker(
    data: st.DataObject,
) -> None:
    request = request_of(LISTING, data)
    frame = framed_request(LISTING, kio_bytes(request))
    ours, theirs, merge = divide(*LISTING, frame, VIEW)
    asked = set(request.resource_types)
    if asked == {GROUP}:
        assert (ours, theirs) == (frame, None)
        return
    assert theirs == frame
    assert merge is not None
    assert (ours is not None) == (not asked or bool(asked & {GROUP, BROKER}))

    rows = data.draw(entities(response_class(*LISTING)).filter(lambda r: r.config_resources))
    kinds = st.sampled_from([TOPIC, BROKER, METRICS, GROUP])
    names = st.sampled_from(["orders", "payments"])
    rows = replace(
        rows,
        config_resources=tuple(
            replace(r, resource_type=data.draw(kinds), resource_name=data.draw(names))
            for r in rows.config_resources
        ),
    )
    reply = framed(LISTING, kio_bytes(rows))
    mine = None if ours is None else reply
    merged = decoded(LISTING, unframed(LISTING, merge(mine, reply)))

    def pairs(entity: Any) -> list[tuple[int, str]]:
        return [(r.resource_type, r.resource_name) for r in entity.config_resources]

    expected = [p for p in pairs(rows) if p[0] != GROUP and p != (TOPIC, "orders")]
    if mine is not None:
        expected += [p for p in pairs(rows) if p[0] in (GROUP, BROKER)]
    assert pairs(merged) == expected


@pytest.mark.parametrize("api", [api for api in SPLIT if api[0] == 10], ids=served_id)
@FEW
@given(data=st.data())
def test_only_coordinators_of_transactions_are_asked_of_the_broker(
    api: tuple[int, int], data: st.DataObject
) -> None:
    request = request_of(api, data)
    frame = framed_request(api, kio_bytes(request))
    transactions = getattr(request, "key_type", 0) == 1
    assert divide(*api, frame, VIEW) == (
        (None, frame, None) if transactions else (frame, None, None)
    )


@pytest.mark.parametrize("api", SPLIT, ids=served_id)
@FEW
@given(data=st.data())
def test_bad_bytes_of_a_client_or_of_a_broker_are_refused_or_copied(
    api: tuple[int, int], data: st.DataObject
) -> None:
    def spoiled(body: bytes) -> bytes:
        out = bytearray(body)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, max(0, len(out) - 1)))
            out[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        return bytes(out)

    request = kio_bytes(request_of(api, data))
    frame = framed_request(api, spoiled(request))
    with suppress(ProtocolError):
        divide(*api, frame[: len(frame) - data.draw(st.integers(0, 3))], VIEW)
    with suppress(ProtocolError):
        _, _, merge = divide(*api, framed_request(api, request), VIEW)
        if merge is not None:
            reply = framed(api, spoiled(kio_bytes(data.draw(entities(response_class(*api))))))
            merge(reply, reply)
