"""``docs/events.md`` names every kind of event and every field of it, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.event_codec import EVENT_SCHEMA_VERSION, EventDict
from storage.record_codec import FORMAT_VERSION
from tests.helpers.sample_events import rendered

TEXT = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
COMMON, _, KINDS = TEXT.partition("## Fields of every event")[2].partition("## Kinds")
SECTIONS = dict(re.findall(r"^### `(\w+)`$(.*?)(?=^### |\Z)", KINDS, re.MULTILINE | re.DOTALL))
COMMON_FIELDS = set(re.findall(r"^\| `([^`]+)` \|", COMMON, re.MULTILINE))


def field_names(value: Any, prefix: str = "") -> Iterator[str]:
    """Name the fields of an event as the document does: ``topics[].partitions[].offset``."""
    for name, inner in value.items():
        yield prefix + name
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield from field_names(inner[0], f"{prefix}{name}[].")


@pytest.mark.parametrize("event", rendered(), ids=lambda event: event["kind"])
def test_every_field_of_every_kind_is_documented_and_no_other(event: EventDict) -> None:
    assert event["kind"] in SECTIONS
    documented = set(re.findall(r"^\| `([^`]+)` \|", SECTIONS[event["kind"]], re.MULTILINE))
    fields = set(field_names(event))
    assert fields >= COMMON_FIELDS
    assert fields - COMMON_FIELDS == documented


def test_no_kind_is_documented_that_does_not_exist() -> None:
    assert set(SECTIONS) == {event["kind"] for event in rendered()}


def test_every_field_has_a_type_and_a_meaning() -> None:
    rows = re.findall(r"^\| `.*$", COMMON + KINDS, re.MULTILINE)
    assert len(rows) > 60
    for row in rows:
        assert re.fullmatch(r"\| `[^`|]+` \| [^|]+ \| [^|]+\. \|", row), row


def test_the_versions_are_those_of_the_code() -> None:
    assert TEXT.startswith(f"# The event log, schema version {EVENT_SCHEMA_VERSION}\n")
    assert f'{{"version": {FORMAT_VERSION},' in TEXT
