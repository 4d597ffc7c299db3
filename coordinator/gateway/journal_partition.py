"""What is known of one partition of the journal: which transactions are open in it (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from groupkeeper.coordinator.core.requests.transactions import EndedTransaction
from groupkeeper.coordinator.gateway.journal_records import TransactionEntry


class JournalPartition:
    """The state of one partition of the journal, as far as it is read."""

    def __init__(self, position: int) -> None:
        """``position`` is the offset of the next entry to read."""
        self.position = position
        self.saved = position
        """Where a restart would begin now, according to the store."""
        self._open: dict[int, list[tuple[int, str]]] = {}
        self._seen: set[tuple[int, str]] = set()

    def has(self, producer_id: int, pending_id: str) -> bool:
        """Return whether the journal has this id, in a transaction of the producer that is open.

        Anybody who may write to the topic can write any id, but only as its own producer.
        """
        return (producer_id, pending_id) in self._seen

    def open_transactions(self) -> int:
        """Return the number of producers with open transactions."""
        return len(self._open)

    def restart_position(self) -> int:
        """Return where to begin after a restart: at the oldest record of an open transaction."""
        return min([records[0][0] for records in self._open.values()], default=self.position)

    def take(self, entries: Iterable[TransactionEntry], position: int) -> list[EndedTransaction]:
        """Add entries up to ``position``, where the next read begins. Return the transactions that
        they end. A marker ends all records of its producer before it, whatever its epoch.
        """
        ended: list[EndedTransaction] = []
        for offset, producer_id, pending_id, is_commit in entries:
            if is_commit is None:
                if pending_id:
                    self._open.setdefault(producer_id, []).append((offset, pending_id))
                    self._seen.add((producer_id, pending_id))
                continue
            records = self._open.pop(producer_id, [])
            for _, each in records:
                self._seen.discard((producer_id, each))
            if records:
                ids = tuple(each for _, each in records)
                ended.append(EndedTransaction(producer_id, ids, is_commit))
        self.position = position
        return ended
