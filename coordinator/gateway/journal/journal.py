"""The journal of transactions: a topic in the upstream cluster, with its reader and its writer.

We write each TxnOffsetCommit to it, as a part of the client's transaction. The marker of the
transaction says how it ended. Until we read it, the offsets are pending: stored in the shard of the
group, but not visible. See docs/design.md#journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.transactions import (
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.gateway.add_offsets import JournalTopic
from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.journal.catch_up import LIMIT_S, CatchUp
from groupkeeper.coordinator.gateway.journal.links import JournalLinks
from groupkeeper.coordinator.gateway.journal.reader import JournalReader
from groupkeeper.coordinator.gateway.journal.shard import (
    JournalCoordinator,
    JournalShard,
)
from groupkeeper.coordinator.gateway.journal.shards import JournalShards
from groupkeeper.coordinator.gateway.journal.topic import FoundTopic, JournalRefused, TopicFinder
from groupkeeper.coordinator.gateway.journal.writer import (
    JournalWrite,
    JournalWriter,
    produce_versions,
)
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.protocol.record_batches import Sender

log = structlog.get_logger(__name__)

T = TypeVar("T")

RETRY_S: Final = 0.2
REFRESH_S: Final = 30.0
"""The interval at which we ask for the leaders if no error shows that they have changed."""
SWEEP_S: Final = 10.0
"""The interval at which we look for pending offsets for which nobody writes a record."""
GO_ON_EVERY_S: Final = 5.0
"""The interval at which we check whether a lost shard can continue (``JournalShards.go_on``)."""

LOG_EVERY_S: Final = 60.0
"""The least time between two log lines about the same problem. We check for it more often."""

FAILED: Final = "a task of the journal has failed, and begins again"

ANSWER_S: Final = 15.0
"""After this time a client gets an error to try again. The record may still be written."""

MAX_IN_FLIGHT: Final = 10_000
"""The largest number of TxnOffsetCommits written at a time. More are refused; clients retry."""


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
        self.opened = asyncio.Event()
        """Set when the journal is open."""
        self._found: FoundTopic | None = None
        self.is_started = False
        self._problem = "the journal is not open yet"
        self._failed: set[str] = set()
        """The names of the tasks that have failed, and have not succeeded since (``_again``)."""
        self._in_flight: dict[str, JournalShard] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._readers: dict[int, asyncio.Task[None]] = {}
        self._leaders_changed = asyncio.Event()
        self._lines = LineLimit(lambda: asyncio.get_running_loop().time(), LOG_EVERY_S, 1)
        self._writer = JournalWriter(
            links, settings.topic, self._leader_of, self._leaders_changed.set
        )
        self.shards = shards = JournalShards(
            settings.topic, coordinator, self._writer, self._in_flight
        )
        self._catch_up = CatchUp(self._writer.end, self._spawn)
        self._reader = JournalReader(
            links, shards.by_id, shards.out_of_range, self._leaders_changed.set
        )

    @property
    def problem(self) -> str:
        """Why offsets in transactions are refused now; empty if they are accepted."""
        return self._problem or (FAILED if self._failed else "")

    @property
    def topic_id(self) -> str:
        """The id of the topic that is read; "" if there is none."""
        return self.shards.topic_id

    # --- start and stop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Open the journal in the background. Until it is open, clients get an error to try again.
        Later calls do nothing.
        """
        if not self.is_started:
            self.is_started = True
            self._spawn(self._again("leaders", self._run))

    async def stop(self) -> None:
        """Stop all tasks and close the connections. The next start reads the journal again."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        self.shards.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._links.close()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            if self._lines.allow("failed") is not None:
                log.error("journal_failed", exc_info=task.exception())
            self._leaders_changed.set()  # a reader that failed is started again

    async def _again(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a task of the journal. If it fails, log this and run it again."""
        while True:
            try:
                return await work()
            except Exception as error:
                self._failed.add(name)
                if self._lines.allow("failed") is not None:
                    log.error("journal_failed", exc_info=error)
            await asyncio.sleep(5 * RETRY_S)
            self._leaders_changed.set()

    async def _run(self) -> None:
        """Open the journal once, and then read it from the brokers that lead its partitions."""
        if not self.opened.is_set():
            await self._open_all()
        while True:
            self._start_readers()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaders_changed.wait(), REFRESH_S)
            await asyncio.sleep(RETRY_S)  # several readers may ask for this at once
            self._leaders_changed.clear()
            await self._refresh()
            self._failed.discard("leaders")

    async def _open_all(self) -> None:
        while (anew := await self._open_shards(await self._open())) is None:
            pass  # the topic was replaced or deleted meanwhile
        self._problem = ""
        self._failed.discard("leaders")
        self.opened.set()
        log.info("journal_open", topic=self.topic.name, topic_id=self.shards.topic_id)
        if anew:
            log.info("journal_goes_on", shards=anew, topic_id=self.shards.topic_id)
        self._spawn(self._again("sweep", self._sweep))
        self._spawn(self._again("lost", self._let_go_on))

    async def _open_shards(self, found: FoundTopic) -> int | None:
        """Open all shards. Return how many begin a new journal; None if the topic was replaced or
        deleted."""
        opening = self._spawn(self.shards.open(range(self.topic.partitions)))
        try:
            while not opening.done():
                await asyncio.wait([opening], timeout=5 * RETRY_S)
                with suppress(BrokerError, JournalRefused):
                    now = await self._finder.find()  # a new topic has leaders only after a while
                    if now is None or now.uuid != found.uuid:
                        return None
                    self._use(now)
            return opening.result()
        finally:
            opening.cancel()
            await asyncio.wait([opening])

    async def _open(self) -> FoundTopic:
        """Find or create the topic. Retry until it can be used."""
        while True:
            try:
                found = await self._finder.found_or_created()
                self._use(found)
                return found
            except (BrokerError, JournalRefused) as error:
                self._tell_problem(str(error))
            await asyncio.sleep(5 * RETRY_S)

    def _tell_problem(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("journal_not_available", reason=problem)
        self._problem = problem

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
        if found is None:
            self.shards.lose_others("")
        else:
            self._use(found)

    def _use(self, found: FoundTopic) -> None:
        self._found = self._reader.topic = found
        self.shards.lose_others(found.topic_id)

    def _start_readers(self) -> None:
        assert self._found is not None
        for broker_id in set(self._found.leaders.values()):
            reader = self._readers.get(broker_id)
            if reader is None or reader.done():
                self._readers[broker_id] = self._spawn(self._reader.read(broker_id))

    async def _sweep(self) -> None:
        """Every ``SWEEP_S``, drop pending offsets that have no record (``JournalShards.sweep``)."""
        while True:
            await self.shards.sweep()
            self._failed.discard("sweep")
            await asyncio.sleep(SWEEP_S)

    async def _let_go_on(self) -> None:
        """Every ``GO_ON_EVERY_S``, let lost shards continue if they can."""
        while True:
            await asyncio.sleep(GO_ON_EVERY_S)
            if self.shards.lost():
                try:
                    self._use(await self._finder.found_or_created())
                    if await self.shards.go_on():
                        self._leaders_changed.set()
                except (BrokerError, JournalRefused) as error:
                    if self._lines.allow("lost") is not None:
                        log.warning("journal_not_available", reason=str(error))
            self._failed.discard("lost")

    async def settle(self) -> None:
        """Read the entries that the journal has now. Then ``lost`` names every lost shard."""
        await self.opened.wait()
        await asyncio.gather(*map(self.shards.settle, range(self.topic.partitions)))

    async def catch_up(self, group_id: str) -> bool:
        """Wait until the group has the offsets of all transactions that ended before the call, or
        until its shard is lost. Return False if this takes too long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.opened.wait(), LIMIT_S)
            shard = self.shards.by_id[shard_of(group_id, self.topic.partitions)]
            return await self._catch_up.wait(shard)
        return False

    # --- TxnOffsetCommit --------------------------------------------------------------------------

    def submit(
        self,
        request: TxnOffsetCommit,
        transactional_id: str,
        version: int,
        done: Callable[[TxnOffsetCommitResult], None],
    ) -> None:
        """Carry out a TxnOffsetCommit of this version. ``done`` gets the answer once: after an
        error, or when the offsets are pending and their record is in the journal.
        """
        shard = self.shards.by_id.get(shard_of(request.group_id, self.topic.partitions))
        if self.problem or shard is None or len(self._in_flight) >= MAX_IN_FLIGHT:
            done(TxnOffsetCommitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        if shard.lost:
            done(TxnOffsetCommitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._in_flight[request.pending_id] = shard
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
        """Answer with the result of the shard. If offsets are pending, write the record first."""
        if not result.is_pending:
            self._in_flight.pop(write.pending_id, None)
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
            self._in_flight.pop(write.pending_id, None)
        answer(result.with_error(error) if error else result)

    # --- for metrics ------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of TxnOffsetCommits that are being written."""
        return len(self._in_flight)

    def open_transactions(self) -> int:
        """Return the number of open transactions with offsets."""
        return sum([each.partition.open_transactions() for each in self.shards.by_id.values()])

    def ended_transactions(self) -> int:
        """Return how many transactions with offsets have ended since the start."""
        return self.shards.ended_transactions()

    def lag(self) -> int:
        """Return how many entries of the partitions are not read yet."""
        return sum([each.lag for each in self.shards.by_id.values()])

    def lost(self) -> Mapping[int, str]:
        """Return the lost shards, each with the reason."""
        return self.shards.lost()


class _Pending:
    """The ticket of a TxnOffsetCommit: passes the result of the shard to ``Journal.stored``."""

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
    """Passes the first answer to ``done``, and ignores later answers."""

    def __init__(self, done: Callable[[TxnOffsetCommitResult], None]) -> None:
        self._done: Callable[[TxnOffsetCommitResult], None] | None = done
        self.timer: asyncio.TimerHandle | None = None

    def __call__(self, result: TxnOffsetCommitResult) -> None:
        done, self._done = self._done, None
        if self.timer is not None:
            self.timer.cancel()
        if done is not None:
            done(result)
