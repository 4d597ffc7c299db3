"""The open transactions of one partition of the journal (pure).

The journal is a topic of ours, with a record for each TxnOffsetCommit. The key of the record is the
id of the offsets, which are pending until their transaction ends. An entry is a record, or the
marker of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from groupkeeper.coordinator.core.requests.transactions import EndedTransaction
from groupkeeper.coordinator.gateway.journal.records import TransactionEntry


class JournalPartition:
    """The state of one partition of the journal, up to the last entry that was read."""

    def __init__(self, position: int) -> None:
        """``position`` is the offset of the next entry to read."""
        self.position = position
        self.saved = position
        """The stored offset at which a restart would begin to read."""
        self._open: dict[int, dict[str, int]] = {}
        """Producer -> the pending ids in its open transaction, in order, each with the offset of
        its record.
        """
        self.records = 0
        """The number of pending ids in all open transactions."""

    def has(self, producer_id: int, pending_id: str) -> bool:
        """Return True if the journal has this id, in an open transaction of the producer.

        Anybody who may write to the topic can write any id, but only as its own producer.
        """
        return pending_id in self._open.get(producer_id, ())

    def open_transactions(self) -> int:
        """Return the number of producers with open transactions."""
        return len(self._open)

    def restart_position(self) -> int:
        """Return the offset at which a restart begins to read: that of the oldest record of an open
        transaction. Without open transactions it is ``position``.
        """
        oldest = [next(iter(ids.values())) for ids in self._open.values()]
        return min(oldest, default=self.position)

    def take(self, entries: Iterable[TransactionEntry], position: int) -> list[EndedTransaction]:
        """Process entries up to ``position``, where the next read begins. Return the transactions
        that these entries end. A marker ends all earlier records of its producer, also those of
        other epochs.
        """
        ended: list[EndedTransaction] = []
        for offset, producer_id, pending_id, is_commit in entries:
            if is_commit is None:
                if pending_id and not self.has(producer_id, pending_id):
                    self._open.setdefault(producer_id, {})[pending_id] = offset
                    self.records += 1
                continue
            ids = self._open.pop(producer_id, None)
            if ids:
                self.records -= len(ids)
                ended.append(EndedTransaction(producer_id, tuple(ids), is_commit))
        self.position = position
        return ended

    def keep(self, pending: Mapping[str, int], before: int) -> None:
        """Forget the records before this offset, except those of pending offsets. ``pending`` maps
        the ids of pending offsets to their producers.
        """
        for producer_id, ids in [*self._open.items()]:
            kept = {
                each: offset
                for each, offset in ids.items()
                if offset >= before or pending.get(each) == producer_id
            }
            self.records += len(kept) - len(ids)
            if kept:
                self._open[producer_id] = kept
            else:
                del self._open[producer_id]
