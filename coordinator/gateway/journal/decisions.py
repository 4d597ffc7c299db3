"""Decisions of a person about pending offsets whose journal is lost.

Offsets are pending from their TxnOffsetCommit until we know how their transaction ended. The
journal, a topic of ours in the upstream cluster, shows this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from groupkeeper.coordinator.core.requests.transactions import (
    EndedTransaction,
    EndTransactions,
    PendingView,
    ReadPending,
    ReadPendingResult,
)
from groupkeeper.coordinator.gateway.journal.journal import Journal
from groupkeeper.coordinator.gateway.journal.shard import (
    MAX_ENDED_AT_ONCE,
    JournalCoordinator,
    ask_shard,
)


class LostShard(NamedTuple):
    """A shard with pending offsets about which its journal cannot decide."""

    shard_id: int
    reason: str
    pending: tuple[PendingView, ...]
    open: int = 0
    """The number of the shard's other pending offsets. The part of the journal that is left has
    their records, so the ends of their transactions will decide about them. A person must not."""


async def lost_shards(journal: Journal, coordinator: JournalCoordinator) -> list[LostShard]:
    """Wait until the journal has decided about all transactions whose markers it has. Return the
    shards with pending offsets about which a person must decide.
    """
    await journal.settle()
    found: list[LostShard] = []
    for shard_id, reason in sorted(journal.lost().items()):
        result: ReadPendingResult = await ask_shard(coordinator, ReadPending(shard_id))
        has = journal.shards.by_id[shard_id].partition.has
        undecidable = tuple(
            each for each in result.pending if not has(each.producer_id, each.pending_id)
        )
        if undecidable:
            is_open = len(result.pending) - len(undecidable)
            found.append(LostShard(shard_id, reason, undecidable, is_open))
    return found


async def decide(
    coordinator: JournalCoordinator,
    shard_id: int,
    pending: Sequence[PendingView],
    *,
    commit: bool,
) -> None:
    """Commit or abort pending offsets, as a marker of their transaction would do."""
    for start in range(0, len(pending), MAX_ENDED_AT_ONCE):
        some = pending[start : start + MAX_ENDED_AT_ONCE]
        ended = tuple(
            EndedTransaction(each.producer_id, (each.pending_id,), commit) for each in some
        )
        known: ReadPendingResult = await ask_shard(coordinator, ReadPending(shard_id))
        assert known.journal is not None, "nothing is pending before a journal is used"
        place = known.journal.topic_id, known.journal.position
        await ask_shard(coordinator, EndTransactions(shard_id, ended, *place))
