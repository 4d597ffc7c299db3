"""Decides when records of ``__consumer_offsets`` take effect: at once, or when their transaction
commits.

The offsets of a transaction are in the topic as soon as they are sent. They take effect only with
the marker that commits the transaction. The order of effects is the same as in Kafka
(OffsetMetadataManager, replay and replayEndTransactionMarker). So the resulting offsets are those
that Kafka's coordinator would return.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from groupkeeper.protocol.offsets_topic import OffsetKey, RecordError, decode_key

ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
"""The type of a control record that commits a transaction (Kafka's ControlRecordType)."""


class RawRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of the topic, with undecoded key and value."""

    offset: int
    """The offset in the topic, also for a record of a transaction."""
    ts_ms: int
    """When the record took effect: when it was appended or, in a transaction, when the transaction
    was committed."""
    key: bytes
    value: bytes | None = None
    is_transactional: bool = False
    """True if a producer sent the record in a transaction. Always False for old dumps, which do not
    have this field."""


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction that was open at the end of the read. Its offsets have no effect yet."""

    producer_id: int
    since_ms: int
    """When the first of its offsets was sent."""
    offsets: int
    groups: tuple[str, ...]


class Transactions:
    """The transactions of one partition of the topic that have not ended."""

    def __init__(self) -> None:
        self._sent: dict[int, dict[bytes, RawRecord]] = {}

    def record(self, record: RawRecord) -> RawRecord:
        """Return a record that is in no transaction: it takes effect at once.

        Older records with the same key are removed from all open transactions. As in Kafka, they
        have no effect when their transaction commits.
        """
        self._overtake(record)
        return record

    def sent(self, producer_id: int, record: RawRecord) -> None:
        """Add a record to a transaction. Of several records with one key only the last counts."""
        self._sent.setdefault(producer_id, {})[record.key] = record

    def ended(self, producer_id: int, marker: int, ts_ms: int) -> list[RawRecord]:
        """End a transaction. Return the records that take effect now: all of its records if it was
        committed, otherwise none.
        """
        sent = self._sent.pop(producer_id, {})
        if marker != COMMIT_MARKER:
            return []
        for record in sent.values():
            self._overtake(record)
        return [
            RawRecord(each.offset, ts_ms, each.key, each.value, is_transactional=True)
            for each in sent.values()
        ]

    def open(self) -> tuple[OpenTransaction, ...]:
        """Return the transactions that have not ended, in the order of their producers."""
        return tuple(_open(number, sent) for number, sent in sorted(self._sent.items()) if sent)

    def _overtake(self, record: RawRecord) -> None:
        for sent in self._sent.values():
            other = sent.get(record.key)
            if other is not None and other.offset < record.offset:
                del sent[record.key]


def _open(producer_id: int, sent: Mapping[bytes, RawRecord]) -> OpenTransaction:
    groups = sorted({_group(record) for record in sent.values()})
    since_ms = min(record.ts_ms for record in sent.values())
    return OpenTransaction(producer_id, since_ms, len(sent), tuple(groups))


def _group(record: RawRecord) -> str:
    try:
        key = decode_key(record.key)
    except RecordError:
        return ""
    return key.group if isinstance(key, OffsetKey) else ""
