"""The sequence numbers with which we write to the journal for clients' producers (pure).

A producer numbers its batches in each partition from 0 in each epoch, and the broker refuses a gap.
The journal is a topic of ours. Only we write into its partitions for the producers.
"""

from __future__ import annotations

from collections.abc import Iterable

from groupkeeper.protocol.record_batches import Sender

_LAST = 2**31 - 1
MAX_PRODUCERS = 100_000
"""The largest number of producers whose numbers we keep for one partition. If there are more, all
are dropped, and we ask the broker again.
"""


class Sequences:
    """The last sequence number of each producer in one partition of the journal."""

    def __init__(self) -> None:
        self.is_known = False
        """False if the broker must be asked (DescribeProducers) before the next number is used."""
        self._used: dict[int, tuple[int, int]] = {}

    def learn(self, producers: Iterable[tuple[int, int, int]]) -> None:
        """Replace all numbers by those of the broker: (producer id, epoch, last sequence)."""
        self._used = {producer_id: (epoch, last) for producer_id, epoch, last in producers}
        self.is_known = True

    def forget(self) -> None:
        """Drop all numbers, so that the broker is asked before the next number is used."""
        self._used.clear()
        self.is_known = False

    def next(self, sender: Sender) -> int:
        """Return the number of the producer's next batch."""
        epoch, last = self._used.get(sender.producer_id, (-1, -1))
        if epoch != sender.producer_epoch or last < 0:
            return 0
        return 0 if last == _LAST else last + 1

    def used(self, sender: Sender, sequence: int) -> None:
        """Record that the broker has a batch with this number."""
        self._used[sender.producer_id] = (sender.producer_epoch, sequence)
        if len(self._used) > MAX_PRODUCERS:
            self.forget()
