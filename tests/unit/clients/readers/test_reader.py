"""Which settings and offsets a reader accepts."""

from __future__ import annotations

import pytest

from groupkeeper.clients.readers.message import MOST_OFFSET
from groupkeeper.clients.readers.partition_log import EARLIEST, LATEST
from groupkeeper.clients.readers.reader import Reader


@pytest.mark.parametrize("offset", [-3, MOST_OFFSET + 1])
async def test_an_offset_that_no_message_can_have_is_refused(offset):
    async with Reader("localhost", "events", 0) as reader:
        with pytest.raises(ValueError, match=f"offset is {offset}"):
            reader.read(offset)


@pytest.mark.parametrize("offset", [EARLIEST, LATEST, 0, MOST_OFFSET])
async def test_every_other_offset_is_accepted(offset):
    async with Reader("localhost", "events", 0) as reader:
        reader.read(offset)


@pytest.mark.parametrize(
    ("topic", "partition", "settings"),
    [
        ("", 0, {}),
        ("events", -1, {}),
        ("events", 0, {"buffer": -1}),
        ("events", 0, {"buffer": 1_000_001}),
        ("events", 0, {"max_bytes": 0}),
        ("events", 0, {"max_wait_ms": 2**31}),
    ],
)
def test_settings_that_cannot_work_are_refused(topic, partition, settings):
    with pytest.raises(ValueError, match=r"must be|no topic|nothing could be read"):
        Reader("localhost", topic, partition, **settings)
