"""Batches of records as Produce and Fetch carry them (format 2), by aiokafka's codecs.

The codecs take 0.1 s to load, which would block the event loop at the first use. Only a gateway
needs them, and it loads them before it serves.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from groupkeeper.protocol.errors import ProtocolError

_MAGIC: Final = 2
_NOT_COMPRESSED: Final = 0
_OVERHEAD_BYTES: Final = 256
"""More than the headers of a batch and of its only record need."""

ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
"""``ABORT_MARKER`` and ``COMMIT_MARKER`` are the types of the control records that end a
transaction (Kafka: ControlRecordType).
"""


class Sender(NamedTuple):
    """A producer in one of its epochs."""

    producer_id: int
    producer_epoch: int


class BatchRecord(NamedTuple):
    """One record of a transaction, or a marker that ends a transaction."""

    offset: int
    producer_id: int
    key: bytes
    marker: int | None = None
    """The type of a control record. None for any other record."""


def write_batch(sender: Sender, sequence: int, now_ms: int, key: bytes, value: bytes) -> bytes:
    """Return a batch with one record, in a transaction of the sender. ``sequence`` is the sequence
    number of the record.
    """
    builder = DefaultRecordBatchBuilder(
        _MAGIC,
        _NOT_COMPRESSED,
        is_transactional=1,
        producer_id=sender.producer_id,
        producer_epoch=sender.producer_epoch,
        base_sequence=sequence,
        batch_size=_OVERHEAD_BYTES + len(key) + len(value),
    )
    builder.append(0, timestamp=now_ms, key=key, value=value, headers=[])
    return bytes(builder.build())


def read_transactional(data: bytes, position: int) -> tuple[list[BatchRecord], int]:
    """Return the records and markers of transactions from offset ``position`` on, and the offset
    after the last batch. That offset is ``position`` if there is no batch. Records outside of
    transactions are left out.

    The first batch may begin before ``position``, and the last batch may be cut off. Two kinds of
    batches are left out: compressed batches, and batches whose checksum is right but whose records
    cannot be read. ``write_batch`` makes neither. Batches of other programs must not fill the
    memory. Raises ProtocolError if the bytes are damaged.
    """
    found: list[BatchRecord] = []
    following = position
    try:
        records = MemoryRecords(data)
        while records.has_next():
            batch = records.next_batch()
            if not batch.validate_crc():
                raise ProtocolError("bad_records", "a batch has a wrong checksum")
            if batch.is_transactional and batch.compression_type == _NOT_COMPRESSED:
                found += _records_of(batch)
            following = max(following, batch.next_offset)
    except (CorruptRecordException, UnsupportedCodecError, ValueError, IndexError) as error:
        raise ProtocolError("bad_records", f"records cannot be read: {error}") from error
    return [each for each in found if each.offset >= position], following


def _records_of(batch: Any) -> list[BatchRecord]:
    found: list[BatchRecord] = []
    try:
        for record in batch:
            key = record.key or b""
            marker = int.from_bytes(key[2:4], "big") if batch.is_control_batch else None
            found.append(BatchRecord(record.offset, batch.producer_id, key, marker))
    except (CorruptRecordException, ValueError, IndexError):
        return []
    return found
