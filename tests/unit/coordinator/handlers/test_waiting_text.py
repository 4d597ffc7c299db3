"""What our command line is told of a group that waits fits into one string of Kafka's."""

from __future__ import annotations

import json

import pytest

from groupkeeper.coordinator.core.waiting import AwaitedMember, Waiting
from groupkeeper.coordinator.handlers.waiting_text import waiting_text
from groupkeeper.protocol.packing import MAX_STRING_BYTES


@pytest.mark.parametrize("client_id", ["billing", "\u00e9" * 200, "x" * 40_000])
def test_what_has_no_room_is_counted_and_the_rest_can_be_read(client_id: str) -> None:
    members = tuple(AwaitedMember(f"m-{n}", client_id, "/192.0.2.7") for n in range(1_000))
    topics = tuple(f"topic-{n:04}" for n in range(5_000))
    text = waiting_text(Waiting(members, 1, 2, topics))
    assert len(text.encode()) <= MAX_STRING_BYTES
    told = json.loads(text)
    assert len(told["awaited"]) + told["awaited_left_out"] == 1_000
    assert len(told["topics"]) + told["topics_left_out"] == 5_000
    assert len(told["topics"]) > 1_000
    assert (told["since_ms"], told["until_ms"]) == (1, 2)
