"""Divided requests and merged replies against kio, in every version."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.apis import TABLE, Treatment
from groupkeeper.coordinator.gateway.rewriting import rewrite
from groupkeeper.coordinator.gateway.splitting import HIDDEN, NOT_INCREMENTAL, divide
from groupkeeper.protocol.codec import request_class, response_class
from groupkeeper.protocol.errors import ProtocolError
from tests.helpers.wire.gateway_frames import (
    HIDDEN_ID,
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
OF_TOPICS = [api for api in SPLIT if api[0] in (20, 21, 37)]
CHANGES_CONFIGS = [api for api in SPLIT if api[0] in (33, 44)]
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
    if hasattr(entity, "topics"):
        some = st.sampled_from(["orders", "orders2", "payments"])
        ids = st.sampled_from([HIDDEN_ID, UUID(int=78)])
        return replace(entity, topics=tuple(named(t, data, some, ids) for t in entity.topics))
    if hasattr(entity, "topic_names"):
        some = st.sampled_from(["orders", "orders2", "payments"])
        return replace(entity, topic_names=tuple(data.draw(some) for _ in entity.topic_names))
    if hasattr(entity, "key_type"):
        return replace(entity, key_type=data.draw(st.sampled_from([0, 1, 2])))
    if hasattr(entity, "resource_types"):
        return replace(entity, resource_types=tuple(data.draw(st.lists(kinds, max_size=3))))
    return entity


def named(topic: Any, data: st.DataObject, names: Any, ids: Any) -> Any:
    """The topic with a name, or with an id in versions that have ids."""
    if hasattr(topic, "topic_id") and data.draw(st.booleans()):
        return replace(topic, name=None, topic_id=data.draw(ids))
    without_id = {"topic_id": None} if hasattr(topic, "topic_id") else {}
    return replace(topic, name=data.draw(names), **without_id)


def is_ours(resource: Any) -> bool:
    if resource.resource_type in (BROKER, LOGGER):
        return bool(resource.resource_name == str(VIEW.node_id))
    return bool(resource.resource_type == GROUP)


def is_hidden(resource: Any) -> bool:
    return (resource.resource_type, resource.resource_name) == (TOPIC, "orders")


def names_of(entity: Any) -> list[Any]:
    """The topics of a request or of the results in its reply, by name and id."""
    for field in ("topic_names", "topics", "responses", "results"):
        if hasattr(entity, field):
            return [
                (each, None)
                if isinstance(each, str)
                else (each.name, getattr(each, "topic_id", None))
                for each in getattr(entity, field)
            ]
    raise AssertionError(entity)


@pytest.mark.parametrize("api", OF_TOPICS, ids=served_id)
@FEW
@given(data=st.data())
def test_a_hidden_topic_cannot_be_changed_and_all_others_can(
    api: tuple[int, int], data: st.DataObject
) -> None:
    request = request_of(api, data)
    frame = framed_request(api, kio_bytes(request))
    ours, theirs, merge = divide(*api, frame, VIEW)

    field = "topic_names" if hasattr(request, "topic_names") else "topics"
    hidden = [("orders", None), (None, HIDDEN_ID)]
    asked = list(zip(getattr(request, field), names_of(request), strict=True))
    others = tuple(topic for topic, pair in asked if pair not in hidden)
    refused = [(topic, pair) for topic, pair in asked if pair in hidden]
    assert ours is None
    assert theirs is not None
    if not refused:
        assert (theirs, merge) == (frame, None)
        return
    assert merge is not None
    assert plain(decoded_request(api, theirs)) == plain(replace(request, **{field: others}))

    their_reply = data.draw(entities(response_class(*api)))
    merged = decoded(api, unframed(api, merge(None, framed(api, kio_bytes(their_reply)))))
    results = next(f for f in ("responses", "results", "topics") if hasattr(merged, f))
    count, found = len(getattr(their_reply, results)), getattr(merged, results)
    assert plain(replace(merged, **{results: found[:count]})) == plain(their_reply)
    added = found[count:]
    assert [pair for _, pair in refused] == [
        (each.name, getattr(each, "topic_id", None)) for each in added
    ]
    for (topic, _), result in zip(refused, added, strict=True):
        assert getattr(result, "error_message", HIDDEN) == HIDDEN
        if hasattr(result, "partitions"):
            assert [
                (p.partition_index, p.low_watermark, p.error_code) for p in result.partitions
            ] == [
                (p.partition_index, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                for p in topic.partitions
            ]
        else:
            assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("api", CHANGES_CONFIGS, ids=served_id)
@FEW
@given(data=st.data())
def test_configs_of_a_hidden_topic_cannot_be_changed(
    api: tuple[int, int], data: st.DataObject
) -> None:
    sample = data.draw(entities(request_class(*api)).filter(lambda request: request.resources))
    first = replace(sample.resources[0], resource_type=TOPIC, resource_name="orders")
    request = request_of(api, data)
    request = replace(request, resources=(first, *request.resources))
    divided = divide(*api, framed_request(api, kio_bytes(request)), VIEW)
    assert divided.merge is not None
    replies = entities(response_class(*api))
    theirs = data.draw(replies)
    mine = None if divided.ours is None else data.draw(replies)
    merged = decoded(
        api,
        unframed(
            api,
            divided.merge(
                None if mine is None else framed(api, kio_bytes(mine)),
                framed(api, kio_bytes(theirs)),
            ),
        ),
    )
    before = [*theirs.responses, *(() if mine is None else mine.responses)]
    assert plain(merged.responses[: len(before)]) == plain(before)
    refused = [r for r in request.resources if is_hidden(r) or (api[0] == 33 and is_ours(r))]
    assert [
        (r.resource_type, r.resource_name, r.error_code, r.error_message)
        for r in merged.responses[len(before) :]
    ] == [
        (TOPIC, "orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
        if is_hidden(r)
        else (r.resource_type, r.resource_name, ErrorCode.INVALID_REQUEST, NOT_INCREMENTAL)
        for r in refused
    ]


@pytest.mark.parametrize("api", OF_RESOURCES, ids=served_id)
@FEW
@given(data=st.data())
def test_every_resource_goes_to_exactly_one_side(api: tuple[int, int], data: st.DataObject) -> None:
    request = request_of(api, data)
    frame = framed_request(api, kio_bytes(request))
    ours, theirs, merge = divide(*api, frame, VIEW)

    mine = tuple(r for r in request.resources if is_ours(r))
    refused = api[0] != 32 and any(map(is_hidden, request.resources))
    others = tuple(
        r for r in request.resources if not is_ours(r) and (api[0] == 32 or not is_hidden(r))
    )
    if api[0] == 33:
        assert ours is None
        assert (merge is not None) == (bool(mine) or refused)
    else:
        assert (ours is not None) == bool(mine)
        assert (merge is not None) == (bool(mine and others) or refused)
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
            replace(second, resource_type=TOPIC, resource_name="payments"),
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
