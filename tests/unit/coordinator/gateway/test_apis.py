"""The table of the gateway's APIs, and every schema of Kafka 4.3.1 that it lets through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from groupkeeper.coordinator.gateway.apis import (
    TABLE,
    Treatment,
    features,
    offered,
    treatment,
    treatments,
)
from groupkeeper.protocol.versions import API_BY_KEY, FEATURES, KNOWN_API_BY_KEY, Feature

APACHE = {
    key: (min(found), max(found))
    for key, name in api_key_map.items()
    for found in [schema_name_map[name]]
}
"""The versions of Apache Kafka 4.3.1."""

SUSPICIOUS = {
    "address",
    "advertised",
    "bootstrap",
    "coordinator",
    "coordinators",
    "endpoint",
    "endpoints",
    "group",
    "groups",
    "host",
    "hostname",
    "listener",
    "listeners",
    "port",
    "server",
    "servers",
    "url",
}
"""Words in the names of fields that may hold an address or a group."""

REWRITTEN = {
    "0 response node_endpoints",
    "0 response node_endpoints.host",
    "0 response node_endpoints.port",
    "3 response brokers.host",
    "3 response brokers.port",
    "60 response brokers.host",
    "60 response brokers.port",
}
"""Fields that ``rewriting`` changes."""

HARMLESS = {
    "27 request markers.coordinator_epoch": "a number",
    "61 response topics.partitions.active_producers.coordinator_epoch": "a number",
    "29 request host_filter": "the host of a client, in an ACL",
    "29 response resources.acls.host": "the host of a client, in an ACL",
    "30 request creations.host": "the host of a client, in an ACL",
    "31 request filters.host_filter": "the host of a client, in an ACL",
    "31 response filter_results.matching_acls.host": "the host of a client, in an ACL",
    "60 request endpoint_type": "brokers or controllers",
    "60 response endpoint_type": "brokers or controllers",
    "80 request listeners": "an administrator names a controller",
    "80 request listeners.host": "an administrator names a controller",
    "80 request listeners.port": "an administrator names a controller",
}
"""Fields that pass as they are, and why."""


def named(entity_type: Any, prefix: str) -> Iterator[str]:
    """Every field of a class and inside it, by its path."""
    hints = get_type_hints(entity_type)
    for field in fields(entity_type):
        path = f"{prefix}{field.name}"
        yield path
        for hint in parts_of(hints[field.name]):
            if is_dataclass(hint):
                yield from named(hint, f"{path}.")


def parts_of(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is UnionType or get_origin(hint) is tuple:
        for inner in get_args(hint):
            yield from parts_of(inner)
    else:
        yield hint


def suspicious_fields() -> Iterator[str]:
    """What is neither answered here nor asked of a broker in other words, and looks like a group or
    an address.
    """
    for key in TABLE:
        lowest, highest = APACHE[key]
        for version in range(lowest, highest + 1):
            if treatment(key, version) not in (Treatment.PASSED, Treatment.REWRITTEN):
                continue
            for kind, load in (
                ("request", load_request_schema),
                ("response", load_response_schema),
            ):
                for path in named(load(key, version), f"{key} {kind} "):
                    if SUSPICIOUS & set(path.rpartition(".")[2].split()[-1].split("_")):
                        yield path


def test_the_table_answers_for_every_address_and_every_group():
    found = set(suspicious_fields())
    assert sorted(found - REWRITTEN - HARMLESS.keys()) == []
    assert sorted((REWRITTEN | HARMLESS.keys()) - found) == [], "no longer in a schema"


def test_every_api_that_names_groups_is_answered_here_or_split():
    group_id = re.compile(r"(^|\.)(group_id|groups_names|coordinator_keys)$")
    naming = {
        key
        for key in TABLE
        for version in range(APACHE[key][0], APACHE[key][1] + 1)
        if any(group_id.search(path) for path in named(load_request_schema(key, version), ""))
    }
    ours = {
        key
        for key, api in TABLE.items()
        if api.treatment in (Treatment.OURS, Treatment.SPLIT, Treatment.TRANSLATED)
    }
    assert len(naming) > 10
    assert naming - ours == set()


def test_every_api_that_we_serve_has_a_row():
    assert sorted(KNOWN_API_BY_KEY.keys() - TABLE.keys()) == []


def test_versions_newer_than_the_table_are_never_offered():
    endless = dict.fromkeys(range(200), (0, 99))
    for key, (_, highest) in offered(endless).items():
        assert highest <= TABLE[key].max_version <= APACHE[key][1], key
        assert treatment(key, highest + 1) is None


def test_only_two_apis_are_capped_below_kafka():
    capped = {key for key, api in TABLE.items() if api.max_version < APACHE[key][1]}
    assert capped == {1, 55}


def test_names_are_those_of_kafka():
    for key, api in TABLE.items():
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower() == api_key_map[key]


def test_ranges_of_what_is_answered_here_are_those_that_are_served():
    for key, api in TABLE.items():
        if api.treatment is Treatment.OURS and key in API_BY_KEY:
            assert api.max_version == API_BY_KEY[key].max_version, api.name


def test_a_kafka_broker_is_listed_with_its_ranges_within_the_table():
    listed = offered(APACHE)
    assert listed[1] == (4, 15)
    assert listed[2] == (1, 11)
    assert listed[8] == (2, 10), "ours, whatever the broker has"
    assert listed[55] == (0, 1)
    assert listed[68] == (0, 1)
    assert not {*range(4, 8), 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73} & listed.keys()
    assert not {*range(76, 80), *range(82, 93)} & listed.keys()


def test_a_broker_without_groups_gets_groups():
    store = {0: (3, 9), 1: (4, 11), 2: (1, 5), 3: (0, 8), 18: (0, 3)}
    listed = offered(store)
    assert listed[0] == (3, 9)
    assert listed[10] == (0, 6)
    assert listed[11] == (0, 9)
    assert listed[68] == (0, 1)
    assert not set(range(22, 29)) & listed.keys(), "no transactions"
    assert treatments(store)[10, 4] is Treatment.OURS, "no coordinator of transactions to ask"


def test_an_old_broker_limits_what_it_must_answer_itself():
    old = dict(APACHE) | {10: (0, 2), 3: (0, 5), 32: (0, 1)}
    listed = offered(old)
    assert listed[10] == (0, 2)
    assert listed[3] == (0, 5)
    assert listed[32] == (1, 1), "version 0 has another layout"


def test_add_offsets_to_txn_is_offered_with_txn_offset_commit_and_transactions():
    assert {25, 28} <= offered(APACHE).keys()
    for missing in (22, 24, 26, 61):
        rest = {key: found for key, found in APACHE.items() if key != missing}
        assert not {25, 28} & offered(rest).keys()


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ((0, 9), Treatment.PASSED),
        ((0, 10), Treatment.REWRITTEN),
        ((0, 14), None),
        ((1, 15), Treatment.PASSED),
        ((1, 16), None),
        ((8, 0), Treatment.OURS),
        ((11, 9), Treatment.OURS),
        ((11, 10), None),
        ((25, 4), Treatment.TRANSLATED),
        ((32, 0), None),
        ((32, 4), Treatment.SPLIT),
        ((60, 2), Treatment.REWRITTEN),
        ((76, 1), None),
        ((1000, 0), None),
        ((3, -1), None),
    ],
)
def test_treatment(api: tuple[int, int], expected: Treatment | None):
    assert treatment(*api) is expected


def test_a_listener_treats_what_it_lists_and_what_old_clients_send():
    found = treatments(APACHE)
    listed = offered(APACHE)
    for key, (lowest, highest) in listed.items():
        for version in range(lowest, highest + 1):
            assert found[key, version] is treatment(key, version), (key, version)
    unlisted = {(k, v) for k, v in found if not listed[k][0] <= v <= listed[k][1]}
    assert unlisted == {(8, 0), (8, 1), (9, 0)}


def test_features_are_the_upstreams_but_for_those_of_groups():
    upstream = [
        Feature("metadata.version", 7, 30, 29),
        Feature("transaction.version", 0, 2, 2),
        Feature("group.version", 0, 2, 0),
        Feature("share.version", 0, 1, 1),
        Feature("streams.version", 0, 1, 1),
    ]
    assert features(upstream) == (upstream[0], upstream[1], *FEATURES)
