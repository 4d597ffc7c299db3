"""Names that can be keys, and what is read from Consul, whoever wrote it."""

from __future__ import annotations

import pytest

from groupkeeper.clients.readers.consul_group import ConsulGroup
from groupkeeper.clients.readers.errors import BadPosition
from groupkeeper.clients.readers.group_keys import GroupKeys, OwnedPartition, read_position
from groupkeeper.storage.connections.consul import ConsulEntry


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "x" * 250])
def test_a_name_that_cannot_be_a_key_is_refused(name):
    with pytest.raises(ValueError, match="cannot name a group"):
        GroupKeys(name)


def test_members_and_owners_are_read_and_other_keys_passed_over():
    keys = GroupKeys("billing")
    view = keys.view(
        9,
        [
            ConsulEntry(keys.owner("events", 3), b"host:1", 7, "s"),
            ConsulEntry(keys.member("events", "host:1"), b'{"partitions": 12}', 6, "s"),
            ConsulEntry(keys.member("events", "host:2"), b"[]", 6, "s"),
            ConsulEntry(keys.member("events", "host:3"), b"[" * 100_000, 6, "s"),
            ConsulEntry(keys.member("events", "host:4"), b'{"partitions": 100001}', 6, "s"),
            ConsulEntry(keys.live + "owners/events/x", b"", 7, None),
            ConsulEntry(keys.live + "owners/events/²", b"", 7, None),
            ConsulEntry(keys.live + "owners/events/" + "9" * 5_000, b"", 7, None),
            ConsulEntry(keys.live + "notes", b"", 7, None),
        ],
    )
    assert view.at_index == 9
    assert view.owners == {"events": {3: OwnedPartition("host:1", "s", 7)}}
    assert view.members == {"events": {"host:1": 12, "host:2": 0, "host:3": 0, "host:4": 0}}


@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"x", b"9" * 19, b"9" * 20, b"\xff"])
def test_a_position_that_is_no_offset_is_told_with_its_key(value):
    with pytest.raises(BadPosition, match="some/key"):
        read_position(ConsulEntry("some/key", value, 1, None))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ttl_ms": 9_999}, "ttl_ms is 9999"),
        ({"ttl_ms": 86_400_001}, "ttl_ms"),
        ({"lock_delay_ms": -1}, "lock_delay_ms"),
        ({"lock_delay_ms": 60_001}, "lock_delay_ms"),
        ({"scheme": "sticky"}, "sticky"),
    ],
)
async def test_what_consul_would_refuse_or_change_is_refused_here(settings, problem):
    with pytest.raises(ValueError, match=problem):
        ConsulGroup("billing", **settings)


async def test_a_group_gives_readers_as_its_scheme_says():
    async with ConsulGroup("billing") as free, ConsulGroup("billing", scheme="spread") as spread:
        with pytest.raises(ValueError, match="scheme 'spread'"):
            await free.new_readers("localhost", "events", 12)
        with pytest.raises(ValueError, match="new_readers"):
            await spread.new_reader("localhost", "events", 12)
        with pytest.raises(ValueError, match="partitions is 0"):
            await free.new_reader("localhost", "events", 0)
