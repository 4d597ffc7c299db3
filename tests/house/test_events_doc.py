"""``docs/reference/events.md`` is printed from the schema of events; written events match it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from groupkeeper.storage.codec.records import FORMAT_VERSION
from groupkeeper.storage.event_log.event_kinds import (
    COMMON_FIELDS,
    EVENT_SCHEMA_VERSION,
    KINDS,
    FieldType,
)
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.core.sample_events import rendered, rendered_snapshot
from tests.helpers.printed.printed_docs import EVENTS, named_fields, with_printed_sections

TEXT = EVENTS.read_text()
BY_NAME = {kind.name: kind for kind in KINDS}
SAMPLES = [*rendered(), *rendered_snapshot()]

TYPES: dict[FieldType, tuple[type, ...]] = {
    FieldType.STRING: (str,),
    FieldType.STRING_OR_NULL: (str, type(None)),
    FieldType.INTEGER: (int,),
    FieldType.STRINGS: (list,),
    FieldType.LIST: (list,),
    FieldType.PARTITIONS_BY_MEMBER: (dict, type(None)),
    FieldType.PARTITIONS_BY_TOPIC: (dict,),
    FieldType.BYTES_BY_MEMBER: (dict, type(None)),
}


def values(event: EventDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Name the values of an event as the document does: ``topics[].partitions[].offset``."""
    for name, value in event.items():
        yield prefix + name, value
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield from values(value[0], f"{prefix}{name}[].")


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event["kind"])
def test_an_event_has_every_field_of_its_kind_and_no_other(event: EventDict) -> None:
    fields = dict(named_fields([*COMMON_FIELDS, *BY_NAME[event["kind"]].fields]))
    found = dict(values(event))
    optional = {name for name, field in fields.items() if field.is_optional}
    assert set(found) | optional == set(fields)
    for name, value in found.items():
        assert isinstance(value, TYPES[fields[name].type]), name


def test_every_kind_is_written_and_every_kind_that_is_written_is_known() -> None:
    assert {kind.name for kind in KINDS} == {event["kind"] for event in SAMPLES}
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_every_field_and_kind_has_a_meaning_that_is_a_sentence() -> None:
    fields = [f for kind in KINDS for _, f in named_fields(kind.fields)]
    assert len(fields) > 60
    for thing in (*KINDS, *fields, *COMMON_FIELDS):
        assert re.fullmatch(r"\S[^|\n]+\.", thing.meaning), thing.name


def test_the_document_is_printed_from_the_schema() -> None:
    assert with_printed_sections(EVENTS) == TEXT, "run `make docs`"


def test_the_versions_are_those_of_the_code() -> None:
    assert TEXT.startswith(f"# The event log, schema version {EVENT_SCHEMA_VERSION}\n")
    assert f'{{"version": {FORMAT_VERSION},' in TEXT
