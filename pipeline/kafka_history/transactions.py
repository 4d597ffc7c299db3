"""When records of ``__consumer_offsets`` count: at once, or from the end of their transaction.

The offsets that a transaction sends lie in the topic from the moment they were sent, and are
nothing until the marker that commits it. This is Kafka's own order (OffsetMetadataManager, replay
and replayEndTransactionMarker), so that what comes out is what its coordinator answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from groupkeeper.protocol.offsets_topic import OffsetKey, RecordError, decode_key

ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
"""The type of a control record that ends a transaction (ControlRecordType)."""


class RawRecord(msgspec.Struct, frozen=True, gc=False):
    """One record, as it was read."""

    offset: int
    """Where it lies in the topic: where it was sent, if it was part of a transaction."""
    ts_ms: int
    """From when on it counts: when the broker appended it, or its transaction's commit."""
    key: bytes
    value: bytes | None = None
    is_transactional: bool = False
    """A producer sent it within a transaction. False in dumps from before this was kept."""


class OpenTransaction(msgspec.Struct, frozen=True):
    """What a transaction sent that had not ended where the read did; it counts for nothing yet."""

    producer_id: int
    since_ms: int
    """When the first of its offsets was sent."""
    offsets: int
    groups: tuple[str, ...]


class Transactions:
    """What is sent and not yet decided in one partition of the topic."""

    def __init__(self) -> None:
        """Begin where no transaction is open."""
        self._sent: dict[int, dict[bytes, RawRecord]] = {}

    def record(self, record: RawRecord) -> RawRecord:
        """Take a record of no transaction, which counts at once.

        An offset that was committed, or deleted, after a transaction sent another of the same
        partition stands: Kafka does not let the older one over it when the transaction commits.
        """
        self._overtake(record)
        return record

    def sent(self, producer_id: int, record: RawRecord) -> None:
        """Take a record of a transaction; of a partition that is sent twice the last one counts."""
        self._sent.setdefault(producer_id, {})[record.key] = record

    def ended(self, producer_id: int, marker: int, ts_ms: int) -> list[RawRecord]:
        """Take the marker that ends a transaction; return what counts from now on."""
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
        """What is undecided still, by producer."""
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
