"""Batches of records: what is written is read, and damaged bytes are refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

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


def test_the_first_fetch_of_a_journal_imports_nothing() -> None:
    """The event loop serves nobody during an import, and the codecs take 0.1 s."""
    code = """
import sys
from groupkeeper.coordinator.daemon import upstream
from groupkeeper.protocol.record_batches import read_transactional
before = set(sys.modules)
read_transactional(bytes.fromhex(sys.argv[1]), 0)
print(sorted(set(sys.modules) - before))
"""
    command = [sys.executable, "-c", code, LOG.hex()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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


GZIP = 1


def compressed() -> bytes:
    builder = DefaultRecordBatchBuilder(
        2,
        GZIP,
        is_transactional=1,
        producer_id=9,
        producer_epoch=3,
        base_sequence=0,
        batch_size=100_000,
    )
    builder.append(0, timestamp=1, key=KEY, value=bytes(50_000), headers=[])
    return bytes(builder.build())


def resealed(batch: bytearray) -> bytes:
    """The batch with the right checksum for what it has now."""
    batch[17:21] = calc_crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def broken_gzip() -> bytes:
    batch = bytearray(compressed())
    batch[61:71] = bytes(10)
    return resealed(batch)


def broken_records() -> bytes:
    batch = bytearray(write_batch(Sender(9, 3), 0, 1, KEY, b"value"))
    batch[61:65] = b"\x7e\x7e\x7e\x7e"
    return resealed(batch)


@pytest.mark.parametrize("make", [compressed, broken_gzip, broken_records])
def test_batch_that_is_not_ours_is_left_out(make) -> None:
    data = LOG + at(7, make()) + at(8, write_batch(Sender(9, 4), 0, 1, b"next", b""))
    found, following = read_transactional(data, 0)
    assert [each.offset for each in found] == [5, 6, 8]
    assert following == 9
