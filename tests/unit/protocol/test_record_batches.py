"""Batches of records: what is written is read, and damaged bytes are refused."""

from __future__ import annotations

import pytest

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.record_batches import (
    COMMIT_MARKER,
    BatchRecord,
    Sender,
    read_transactional,
    write_batch,
)
from tests.helpers.gateway.journal_broker import marker

KEY = b"a key"


def at(offset: int, batch: bytes) -> bytes:
    """The batch as a broker stores it."""
    return offset.to_bytes(8, "big") + batch[8:]


LOG = at(5, write_batch(Sender(9, 3), 0, 1, KEY, b"value")) + at(6, marker(9, 3, commit=True))


def test_records_and_markers_of_transactions_are_read() -> None:
    found, following = read_transactional(LOG, 0)
    assert found[0] == BatchRecord(5, 9, KEY)
    assert (found[1].offset, found[1].producer_id, found[1].marker) == (6, 9, COMMIT_MARKER)
    assert following == 7


def test_what_lies_before_the_position_is_left_out() -> None:
    found, following = read_transactional(LOG, 6)
    assert [each.offset for each in found] == [6]
    assert following == 7


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_last_batch_may_be_cut_off(cut: int) -> None:
    found, following = read_transactional(LOG[:-cut], 0)
    assert [each.offset for each in found] == [5]
    assert following == 6


def test_nothing_is_read_of_nothing() -> None:
    assert read_transactional(b"", 4) == ([], 4)


@pytest.mark.parametrize("position", [22, 40, 62, 66])
def test_damaged_batch_is_refused(position: int) -> None:
    damaged = bytearray(LOG)
    damaged[position] ^= 1
    with pytest.raises(ProtocolError):
        read_transactional(bytes(damaged), 0)
