"""The shards of the journal: how each begins, is lost, and continues.

The journal is a topic of ours, in which we read how transactions end. Until then their offsets are
pending. A shard is lost if the journal cannot decide about all of its pending offsets: the topic
was deleted, or records were removed before they were read. Then a person decides about them
(``groupkeeper upstream resolve``). A shard without pending offsets continues by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from groupkeeper.coordinator.core.requests.transactions import MoveJournal, ReadPending
from groupkeeper.coordinator.gateway.journal.shard import (
    RETRY_S,
    JournalCoordinator,
    JournalLost,
    JournalShard,
    ask_shard,
)
from groupkeeper.coordinator.gateway.journal.writer import JournalWriter

log = structlog.get_logger(__name__)

LOST_LINE_S: Final = 1.0
"""If several shards are lost within this time, one log line reports them."""

SWEEP_LIMIT_S: Final = 40.0
"""The longest time for one check of a shard, because its partition may have no leader now. It is
longer than the time-out of a request: only a request that times out closes a connection to a silent
broker.
"""

GO_ON_S: Final = 10.0
"""The longest time for one attempt of a shard to continue. Its partition may have no leader now."""


class JournalShards:
    """All shards of a journal. Begins them, marks them as lost, and lets them continue."""

    def __init__(
        self,
        topic: str,
        coordinator: JournalCoordinator,
        writer: JournalWriter,
        in_flight: Mapping[str, JournalShard],
    ) -> None:
        """``in_flight`` has the pending offsets that are being written, by their ids."""
        self.by_id: dict[int, JournalShard] = {}
        self.topic_id = ""
        """The id of the topic that is read now."""
        self._topic = topic
        self._coordinator = coordinator
        self._writer = writer
        self._in_flight = in_flight
        self._ended_before = 0
        self._newly_lost: list[JournalShard] = []
        self._line: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Stop the work of all shards."""
        if self._line is not None:
            self._line.cancel()
            self._tell_lost()
        for shard in self.by_id.values():
            shard.stop()

    def ended_transactions(self) -> int:
        """Return how many transactions with offsets have ended since the start."""
        return self._ended_before + sum([each.ended_transactions for each in self.by_id.values()])

    # --- a shard begins ---------------------------------------------------------------------------

    async def open(self, shard_ids: Iterable[int]) -> int:
        """Begin to read each shard at its stored position. Return how many shards begin a new
        journal, because their old one is gone and no offsets were pending.
        """
        async with asyncio.TaskGroup() as opening:
            tasks = [opening.create_task(self._open(each)) for each in shard_ids]
        return sum([each.result() for each in tasks])

    async def _open(self, shard_id: int) -> bool:
        result = await ask_shard(self._coordinator, ReadPending(shard_id))
        known = result.journal
        if known is None or (known.topic_id != self.topic_id and not result.pending):
            # Nothing that anybody needs can be in this topic yet.
            await self._begin(shard_id)
            return known is not None
        shard = self._shard(shard_id, known.topic_id, known.position)
        self._use(shard)
        if known.topic_id != self.topic_id:
            self._lose([shard], self._other_id(known.topic_id), is_gone=True)
        return False

    async def _begin(self, shard_id: int) -> None:
        """Begin to read the partition of a shard at its present end, and store this position."""
        topic_id = self.topic_id
        end = await self._writer.end(self._shard(shard_id, topic_id, 0))
        if topic_id != self.topic_id:
            return
        move = MoveJournal(shard_id, topic_id, end)
        await ask_shard(self._coordinator, move)
        before = self.by_id.get(shard_id)
        self._use(self._shard(shard_id, topic_id, end))
        if before is not None and before.is_cut:
            # The earlier object read until now, and may have stored its position after ours.
            await before.drained()
            await ask_shard(self._coordinator, move)

    def _shard(self, shard_id: int, topic_id: str, position: int) -> JournalShard:
        return JournalShard(shard_id, topic_id, position, self._coordinator)

    def _use(self, shard: JournalShard) -> None:
        """Use this object for its shard. From now on, writes through the earlier object are
        refused.
        """
        before = self.by_id.get(shard.shard_id)
        if before is not None:
            self._ended_before += before.ended_transactions
            if not before.lost:
                before.lose("the partition is read from another position")
        self.by_id[shard.shard_id] = shard

    # --- a shard is lost --------------------------------------------------------------------------

    def lose_others(self, topic_id: str) -> None:
        """Mark the shards as lost whose topic has another id than this one. The id is "" if the
        topic does not exist.
        """
        self.topic_id = topic_id
        others = [
            each for each in self.by_id.values() if not each.lost and each.topic_id != topic_id
        ]
        if others:
            deleted = f"the topic {self._topic} was deleted"
            reason = self._other_id(others[0].topic_id) if topic_id else deleted
            self._lose(others, reason, is_gone=True)

    def _other_id(self, topic_id: str) -> str:
        return (
            f"the topic {self._topic} has the id {self.topic_id}, and was {topic_id}: it was "
            "deleted and created again, or upstream.journal_topic was changed"
        )

    def _lose(self, shards: Iterable[JournalShard], reason: str, *, is_gone: bool = False) -> None:
        for shard in shards:
            shard.lose(reason, is_gone=is_gone)
            self._newly_lost.append(shard)
        if self._line is None:
            self._line = asyncio.get_running_loop().call_later(LOST_LINE_S, self._tell_lost)

    def _tell_lost(self) -> None:
        lost, self._newly_lost, self._line = self._newly_lost, [], None
        shard = lost[0].shard_id
        log.error("journal_lost", shards=len(lost), shard=shard, reason=lost[0].lost)

    async def out_of_range(self, shard: JournalShard) -> None:
        """Continue to read a shard whose position is not in its partition.

        Usually the retention, which takes days, or a person has removed the records between the
        position and the start of the partition. Records of pending offsets may have been among
        them. So the shard continues at the start, and ``sweep`` later decides whether it is lost.
        It is lost at once if the partition ends before the position and offsets are pending.

        Raises JournalLost if the shard is lost in the meantime.
        """
        await shard.drained()
        pending = await shard.read_pending()
        start, end = await self._writer.start(shard), await self._writer.end(shard)
        position = shard.partition.position
        if shard is not self.by_id.get(shard.shard_id) or shard.lost or start <= position <= end:
            return
        if position > end and pending:
            reason = f"the partition ends at {end}, and was read up to {position}: its end is lost"
            self._lose([shard], reason)
            return
        # Records that were read before are forgotten too: their markers may have been removed.
        after = self._shard(shard.shard_id, shard.topic_id, min(max(position, start), end))
        after.partition.saved = shard.partition.saved
        after.is_cut = bool(pending)
        self._use(after)

    # --- pending offsets without a record ---------------------------------------------------------

    async def sweep(self) -> None:
        """Drop pending offsets whose record an earlier process did not write.

        If records were removed before we read them, the missing record may be one of these. Then
        mark the shard as lost instead.
        """
        shards = [each for each in self.by_id.values() if not each.lost]
        await asyncio.gather(*map(self._sweep_for_a_while, shards))

    async def _sweep_for_a_while(self, shard: JournalShard) -> None:
        with suppress(JournalLost, TimeoutError):
            async with asyncio.timeout(SWEEP_LIMIT_S):
                await self._sweep(shard)

    async def _sweep(self, shard: JournalShard) -> None:
        missing = await shard.unwritten(partial(self._writer.end, shard), self._in_flight)
        if shard.lost:
            return
        if not missing:
            shard.is_cut = False
        elif shard.is_cut:
            reason = (
                f"records after {shard.partition.saved} were removed before they were read, and "
                "pending offsets are not in the rest"
            )
            self._lose([shard], reason)
        else:
            await shard.drop(sorted(missing))
            log.info("journal_dropped", shard=shard.shard_id, pending=len(missing))

    async def settle(self, shard_id: int) -> None:
        """Wait until a shard is lost, or has read all entries that the topic has now."""
        while not (shard := self.by_id[shard_id]).lost:
            with suppress(JournalLost):
                end = await self._writer.end(shard)
                if shard.partition.position <= end:
                    await shard.reached(end)
                    await self._sweep(shard)
                    if not shard.is_cut:
                        return
            await asyncio.sleep(RETRY_S)

    # --- a shard continues ------------------------------------------------------------------------

    def lost(self) -> Mapping[int, str]:
        """Return the lost shards, each with the reason."""
        return {shard_id: each.lost for shard_id, each in self.by_id.items() if each.lost}

    async def go_on(self) -> bool:
        """Let lost shards continue with the present topic, if they have no pending offsets, or if
        it is again the topic that they used. Return True if a shard continues.
        """
        lost = [each for each in self.by_id.values() if each.lost]
        results = await asyncio.gather(*[self._goes_on(each) for each in lost])
        count = sum(results)
        if count:
            log.info("journal_goes_on", shards=count, topic_id=self.topic_id)
        return count > 0

    async def _goes_on(self, shard: JournalShard) -> bool:
        if any(each is shard for each in self._in_flight.values()):
            return False  # its writers end soon
        with suppress(TimeoutError, JournalLost):
            async with asyncio.timeout(GO_ON_S):
                await shard.drained()
                result = await ask_shard(self._coordinator, ReadPending(shard.shard_id))
                if not result.pending:
                    await self._begin(shard.shard_id)
                elif shard.is_gone and shard.topic_id == self.topic_id:
                    position = result.journal.position
                    self._use(self._shard(shard.shard_id, shard.topic_id, position))
        return self.by_id[shard.shard_id] is not shard
