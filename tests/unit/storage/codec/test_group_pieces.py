"""A large group is encoded in pieces, and the loop turns between them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset
from groupkeeper.storage.codec.group_pieces import encode_in_pieces, snapshot_of
from groupkeeper.storage.codec.records import encode_saved
from tests.helpers.core.records import group_record
from tests.helpers.runtime.virtual_loop import turns

TEXTS = st.text(max_size=8)
OFFSETS = st.builds(
    SavedOffset,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 5),
    TEXTS,
    st.integers(0, 2**50),
    st.just(-1),
    TEXTS,
)
PARTITIONS = st.dictionaries(st.integers(0, 2**31 - 1), OFFSETS, max_size=8)


def group_of(offsets: dict[str, dict[int, SavedOffset]]) -> SavedGroup:
    return SavedGroup("g", None, offsets)


@given(TEXTS, st.dictionaries(TEXTS, PARTITIONS, max_size=5), st.booleans(), st.integers(1, 2_000))
async def test_the_pieces_together_are_the_encoded_group(name, offsets, has_members, piece_bytes):
    metadata = group_record(name, members=2) if has_members else None
    group = SavedGroup(name, metadata, offsets)
    assert await encode_in_pieces(group, piece_bytes) == encode_saved(group)


@pytest.mark.parametrize("topics", [1, 60])
async def test_the_loop_turns_after_each_piece(topics: int) -> None:
    counted = []

    async def turn() -> None:
        while True:
            counted.append(1)
            await turns()

    each = {number: SavedOffset(1, -1, "x" * 1_000, 0, -1, "") for number in range(60 // topics)}
    group = group_of({f"t{number}": each for number in range(topics)})
    turning = asyncio.create_task(turn())
    encoded = await encode_in_pieces(group, 10_000)
    turning.cancel()
    assert encoded == encode_saved(group)
    assert 3 <= len(counted) <= 8


def test_a_snapshot_does_not_change_with_the_group() -> None:
    one, two = (SavedOffset(offset, -1, "", 0, -1, "") for offset in (1, 2))
    offsets = {"t": {0: one}}
    snapshot = snapshot_of(group_of(offsets))
    offsets["t"][0] = two
    offsets["t"][1] = two
    offsets["u"] = {0: two}
    assert snapshot.offsets == {"t": {0: one}}
