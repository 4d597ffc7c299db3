"""The journal of transactions: its topic upstream, its reader and its writer.

See docs/design.md#journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.transactions import (
    MoveJournal,
    ReadPending,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.gateway.add_offsets import JournalTopic
from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.journal_links import JournalLinks
from groupkeeper.coordinator.gateway.journal_reader import JournalReader
from groupkeeper.coordinator.gateway.journal_shard import (
    JournalCoordinator,
    JournalShard,
    ask_shard,
)
from groupkeeper.coordinator.gateway.journal_topic import FoundTopic, JournalRefused, TopicFinder
from groupkeeper.coordinator.gateway.journal_writer import (
    JournalWrite,
    JournalWriter,
    produce_versions,
)
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.protocol.record_batches import Sender

log = structlog.get_logger(__name__)

RETRY_S: Final = 0.2
REFRESH_S: Final = 30.0
"""How often the leaders are asked for, if nobody says that they have changed."""
SWEEP_S: Final = 10.0
"""How often pending offsets are looked for that nobody is writing."""

LOG_EVERY_S: Final = 60.0
"""How often it is logged that the leaders are unknown. They are asked for much more often."""

FAILED: Final = "a task of the journal has failed, and begins again"

ANSWER_S: Final = 15.0
"""After this time a client is told to try again. The record is still written or given up."""

MAX_IN_FLIGHT: Final = 10_000
"""TxnOffsetCommits that are being written. More are refused, and clients try again."""


class JournalSettings(NamedTuple):
    """The name of the topic, and the number of its partitions: one for each shard."""

    topic: str
    shards: int


class Journal:
    """Writes TxnOffsetCommits to the journal, and reads from it how their transactions end."""

    def __init__(
        self, settings: JournalSettings, coordinator: JournalCoordinator, links: JournalLinks
    ) -> None:
        self._coordinator = coordinator
        self._links = links
        self._finder = TopicFinder(links, settings.topic, settings.shards)
        self.topic = JournalTopic(settings.topic, settings.shards)
        self.problem = "the journal is not open yet"
        """Why transactions cannot have offsets now; empty if they can."""
        self.opened = asyncio.Event()
        """Set when the journal is open."""
        self._found: FoundTopic | None = None
        self._is_started = False
        self._in_flight: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers: dict[int, asyncio.Task[None]] = {}
        self._leaders_changed = asyncio.Event()
        self._lines = LineLimit(lambda: asyncio.get_running_loop().time(), LOG_EVERY_S, 1)
        self._writer = JournalWriter(
            links, settings.topic, self._leader_of, self._leaders_changed.set
        )
        self._reader = JournalReader(links, self._writer.end, self._lose, self._leaders_changed.set)

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the journal in the background. Until it is open, clients are told to try again.
        Later calls do nothing.
        """
        if not self._is_started:
            self._is_started = True
            self._spawn(self._again(self._run))

    async def stop(self) -> None:
        """Stop. Whatever is not decided is decided after the next start."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        for shard in self._reader.shards.values():
            shard.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._links.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            if self._lines.allow("failed") is not None:
                log.error("journal_failed", exc_info=task.exception())
            self._leaders_changed.set()  # a reader that failed is started again

    async def _again(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do work of the journal, and begin again if it fails."""
        while True:
            try:
                return await work()
            except Exception as error:
                self.problem = FAILED
                if self._lines.allow("failed") is not None:
                    log.error("journal_failed", exc_info=error)
            await asyncio.sleep(5 * RETRY_S)
            if self.opened.is_set() and self.problem == FAILED:
                self.problem = ""

    async def _run(self) -> None:
        """Open the journal once, and then follow its leaders."""
        if not self.opened.is_set():
            await self._open_all()
        while True:
            self._start_readers()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaders_changed.wait(), REFRESH_S)
            await asyncio.sleep(RETRY_S)  # many may say so at once
            self._leaders_changed.clear()
            await self._refresh()

    async def _open_all(self) -> None:
        found = await self._open()
        opening = [self._open_shard(number, found) for number in range(self.topic.partitions)]
        await asyncio.gather(*opening)
        self.problem = ""
        self.opened.set()
        log.info("journal_open", topic=self.topic.name, topic_id=found.topic_id)
        self._spawn(self._again(self._sweep))

    async def _open(self) -> FoundTopic:
        """Find or create the topic; try again until it is there."""
        while True:
            try:
                found = await self._finder.found_or_created()
                self._use(found)
                return found
            except (BrokerError, JournalRefused) as error:
                self._tell_problem(str(error))
            await asyncio.sleep(5 * RETRY_S)

    def _tell_problem(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("journal_not_available", reason=problem)
        self.problem = problem

    async def _open_shard(self, shard_id: int, found: FoundTopic) -> None:
        result = await ask_shard(self._coordinator, ReadPending(shard_id))
        known = result.journal
        topic_id = found.topic_id if known is None else known.topic_id
        position = 0 if known is None else known.position
        shard = JournalShard(shard_id, topic_id, position, self._coordinator)
        self._reader.shards[shard_id] = shard
        if known is None:
            # Nothing of ours can be in the journal yet.
            position = await self._writer.end(shard)
            await ask_shard(self._coordinator, MoveJournal(shard_id, topic_id, position))
            self._reader.shards[shard_id] = JournalShard(
                shard_id, topic_id, position, self._coordinator
            )
        elif topic_id != found.topic_id:
            self._lose(
                shard,
                f"the topic {self.topic.name} has the id {found.topic_id}, and was {topic_id}: "
                "it was deleted and created again",
            )

    def _lose(self, shard: JournalShard, reason: str) -> None:
        shard.lost = reason
        log.error("journal_lost", shard=shard.shard_id, reason=reason)

    # --- leaders and readers ----------------------------------------------------------------------

    def _leader_of(self, shard_id: int) -> int | None:
        return None if self._found is None else self._found.leaders.get(shard_id)

    async def _refresh(self) -> None:
        try:
            found = await self._finder.find()
        except (BrokerError, JournalRefused) as error:
            if self._lines.allow("leaders") is not None:
                log.info("journal_leaders_unknown", reason=str(error))
            self._leaders_changed.set()
            return
        before = self._found
        assert before is not None
        if found is None or found.uuid != before.uuid:
            for shard in self._reader.shards.values():
                if not shard.lost:
                    self._lose(shard, f"the topic {self.topic.name} was deleted")
            return
        self._use(found)

    def _use(self, found: FoundTopic) -> None:
        self._found = self._reader.topic = found

    def _start_readers(self) -> None:
        assert self._found is not None
        for broker_id in set(self._found.leaders.values()):
            reader = self._readers.get(broker_id)
            if reader is None or reader.done():
                self._readers[broker_id] = self._spawn(self._reader.read(broker_id))

    async def _sweep(self) -> None:
        """Drop pending offsets that a process before this one could not write."""
        while True:
            for shard in self._reader.shards.values():
                if shard.lost:
                    continue
                end = partial(self._writer.end, shard)
                dropped = await shard.drop_unwritten(end, self._in_flight)
                if dropped:
                    log.info("journal_dropped", shard=shard.shard_id, pending=len(dropped))
            await asyncio.sleep(SWEEP_S)

    # --- TxnOffsetCommit --------------------------------------------------------------------------

    def submit(
        self,
        request: TxnOffsetCommit,
        transactional_id: str,
        version: int,
        done: Callable[[TxnOffsetCommitResult], None],
    ) -> None:
        """Carry out a TxnOffsetCommit of this version. ``done`` gets the answer once, when the
        offsets are pending and their record is in the journal.
        """
        shard = self._reader.shards.get(shard_of(request.group_id, self.topic.partitions))
        if self.problem or shard is None or len(self._in_flight) >= MAX_IN_FLIGHT:
            done(TxnOffsetCommitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        if shard.lost:
            done(TxnOffsetCommitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._in_flight.add(request.pending_id)
        write = JournalWrite(
            request.pending_id,
            request.group_id,
            transactional_id,
            Sender(request.producer_id, request.producer_epoch),
            produce_versions(version),
        )
        self._coordinator.submit(request, _Pending(self, shard, write, done))

    def stored(
        self,
        shard: JournalShard,
        write: JournalWrite,
        result: TxnOffsetCommitResult,
        done: Callable[[TxnOffsetCommitResult], None],
    ) -> None:
        """Called when the shard has answered. Write the record if offsets are pending."""
        if not result.is_pending:
            self._in_flight.discard(write.pending_id)
            done(result)
            return
        answer = _Once(done)
        self._spawn(self._write(shard, write, result, answer))
        late = TxnOffsetCommitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer.timer = asyncio.get_running_loop().call_later(ANSWER_S, answer, late)

    async def _write(
        self,
        shard: JournalShard,
        write: JournalWrite,
        result: TxnOffsetCommitResult,
        answer: _Once,
    ) -> None:
        try:
            error = await self._writer.write(shard, write)
            if error:
                await shard.drop([write.pending_id])
            else:
                error = await shard.confirm(write.pending_id)
        finally:
            self._in_flight.discard(write.pending_id)
        answer(_with_error(result, error) if error else result)

    # --- for metrics ------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """TxnOffsetCommits that are being written."""
        return len(self._in_flight)

    def open_transactions(self) -> int:
        """Return the number of open transactions with offsets."""
        return sum([each.partition.open_transactions() for each in self._reader.shards.values()])

    def ended_transactions(self) -> int:
        """Return how many transactions with offsets have ended since the start."""
        return sum([each.ended_transactions for each in self._reader.shards.values()])

    def lost(self) -> Mapping[int, str]:
        """Return the shards whose partition cannot be read any more, and why."""
        return {shard_id: each.lost for shard_id, each in self._reader.shards.items() if each.lost}


class _Pending:
    """The ticket of a TxnOffsetCommit in its shard."""

    def __init__(
        self,
        journal: Journal,
        shard: JournalShard,
        write: JournalWrite,
        done: Callable[[TxnOffsetCommitResult], None],
    ) -> None:
        self._journal = journal
        self._shard = shard
        self._write = write
        self._done = done

    def resolve(self, result: TxnOffsetCommitResult) -> None:
        self._journal.stored(self._shard, self._write, result, self._done)


class _Once:
    """Passes on the first answer only."""

    def __init__(self, done: Callable[[TxnOffsetCommitResult], None]) -> None:
        self._done: Callable[[TxnOffsetCommitResult], None] | None = done
        self.timer: asyncio.TimerHandle | None = None

    def __call__(self, result: TxnOffsetCommitResult) -> None:
        done, self._done = self._done, None
        if self.timer is not None:
            self.timer.cancel()
        if done is not None:
            done(result)


def _with_error(result: TxnOffsetCommitResult, error: ErrorCode) -> TxnOffsetCommitResult:
    """Return the answer with this error for every partition that had none."""
    if result.topics is None:
        return TxnOffsetCommitResult(error)
    topics = [
        (name, topic_id, [(partition, code or error) for partition, code in rows])
        for name, topic_id, rows in result.topics
    ]
    return TxnOffsetCommitResult(ErrorCode.NONE, topics)
