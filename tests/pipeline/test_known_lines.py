"""A line with a field that the schema lacks is found, at whatever level the field is."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.log.known_lines import KNOWN_LINE
from groupkeeper.storage.segment_lines import encode_line
from tests.pipeline.events import at, commit
from tests.pipeline.histories import a_history
from tests.pipeline.test_bronze import ODD_METADATA
from tests.pipeline.test_silver_gold import STORY


def is_known(line: bytes | dict) -> bool:
    text = line if isinstance(line, bytes) else msgspec.json.encode(line)
    return re.search(KNOWN_LINE, text.decode().rstrip("\n")) is not None


@pytest.mark.parametrize("encode", [encode_line, msgspec.json.encode])
def test_lines_as_they_are_written_are_known(encode: Callable[[dict], bytes]) -> None:
    for event in [*STORY, *a_history(seed=3).events]:
        assert is_known(encode(event)), event


def test_no_text_or_name_of_a_user_looks_like_a_field() -> None:
    for text in (*ODD_METADATA, '"new":1', '{"new":1}', '\\"new\\":1'):
        event = commit(1, [(text, 0, 7, 6)], group=text, member=text, client_id=text)
        assert is_known(encode_line(event)), text
        held = core.Assignment(
            group_id="g", protocol_type="consumer", partitions={text: {text: [1]}}
        )
        assert is_known(encode_line(at(1, held))), text


COMMIT = msgspec.json.decode(encode_line(commit(1, [("orders", 0, 7, 6)])))


def topic_with(**more: object) -> dict:
    (topic,) = COMMIT["topics"]
    return COMMIT | {"topics": [topic | more]}


NEW = {
    "of the event": COMMIT | {"region": None},
    "of the event, with a name that partitions have": COMMIT | {"metadata": "x"},
    "of a topic": topic_with(size=1),
    "of a topic, with a name that events have": topic_with(group="x"),
    "of a partition": topic_with(rows=None, partitions=[{"partition": 0, "lag": [{"a": 1}]}]),
    "in a row": topic_with(rows=[[0, 7, 6, 3, "note", "new"]]),
}


@pytest.mark.parametrize("where", NEW)
def test_a_new_field_is_found(where: str) -> None:
    assert is_known(COMMIT)
    assert not is_known(NEW[where])


def test_a_long_line_needs_no_stack() -> None:
    """Java's expressions call themselves once for each repetition that is not possessive."""
    rows = [("orders", number, 7, 6) for number in range(100_000)]
    assert is_known(encode_line(commit(1, rows)))
