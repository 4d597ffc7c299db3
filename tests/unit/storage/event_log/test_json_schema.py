"""The JSON Schema of events: every event that is written fits it, others do not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.storage.event_log.event_kinds import FieldType
from groupkeeper.storage.event_log.json_schema import TYPES, json_schema
from tests.helpers.core.sample_events import rendered, rendered_snapshot
from tests.helpers.printed.printed_docs import EVENTS_SCHEMA, events_json_schema

SAMPLES = [*rendered(), *rendered_snapshot()]
PYTHON = {"string": str, "integer": int, "array": list, "object": dict, "null": type(None)}


def misfits(schema: Mapping[str, Any], value: Any, place: str = "") -> Iterator[str]:
    """What a validator would complain about, for the words that the schema uses."""
    unknown = schema.keys() - {*WORDS, "$schema", "title", "description"}
    assert not unknown, unknown
    types = schema.get("type", [])
    allowed = tuple(PYTHON[name] for name in ([types] if isinstance(types, str) else types))
    if allowed and not isinstance(value, allowed):
        yield f"{place} is {value!r}"
        return
    if isinstance(value, dict):
        yield from (f"{place}.{n} lacks" for n in schema.get("required", []) if n not in value)
        for name, each in value.items():
            rule = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            yield from misfits(rule, each, f"{place}.{name}")
    if isinstance(value, list):
        for each in value:
            yield from misfits(schema.get("items", {}), each, f"{place}[]")
    for rule in schema.get("allOf", []):
        if rule["if"]["properties"]["kind"]["const"] == value.get("kind"):
            yield from misfits(rule["then"], value, place)


WORDS = ("type", "properties", "required", "items", "additionalProperties", "allOf")


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event["kind"])
def test_every_event_that_is_written_fits(event):
    assert list(misfits(json_schema(), event)) == []


def test_an_event_of_other_types_does_not_fit():
    event = {**SAMPLES[0], "seq": "1"}
    assert list(misfits(json_schema(), event)) == [".seq is '1'"]
    del event["seq"]
    assert list(misfits(json_schema(), event)) == [".seq lacks"]


def test_a_field_or_kind_of_a_later_version_fits():
    event = {**SAMPLES[0], "kind": "of_a_later_version", "more": 1}
    assert list(misfits(json_schema(), event)) == []


def test_every_type_of_field_has_a_schema():
    assert set(TYPES) == set(FieldType)


def test_the_published_file_is_printed_from_the_code():
    assert EVENTS_SCHEMA.read_text() == events_json_schema(), "run `make docs`"


def test_the_command_prints_it():
    assert json.loads(CliRunner().invoke(app, ["log", "schema"]).output) == json_schema()
