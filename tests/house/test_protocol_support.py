"""The versions in protocol/versions.py are those of Kafka's schemas, as kio has them."""

from __future__ import annotations

from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from groupkeeper.protocol.versions import APIS, ApiKey


def test_ranges_are_those_of_the_schemas() -> None:
    for api in APIS:
        versions = schema_name_map[api_key_map[api.key]]
        assert min(versions) == api.min_version, api.name
        assert max(versions) == api.max_version, api.name


def test_flexible_versions_are_those_of_the_schemas() -> None:
    for api in APIS:
        for version in range(api.min_version, api.max_version + 1):
            flexible = load_request_schema(api.key, version).__flexible__
            assert flexible == api.is_flexible(version), (api.name, version)


def test_only_two_apis_are_served_below_what_is_advertised() -> None:
    below = {api.key for api in APIS if api.lowest_served < api.advertised_min}
    assert below == {ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH}


def test_produce_alone_is_advertised_below_what_is_served() -> None:
    assert [api.key for api in APIS if api.advertised_min < api.lowest_served] == [ApiKey.PRODUCE]


def test_every_listed_api_has_responses_too() -> None:
    for api in APIS:
        versions = schema_name_map[api_key_map[api.key]]
        assert all(EntityType.response in types for types in versions.values()), api.name
