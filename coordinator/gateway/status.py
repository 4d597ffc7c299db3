"""The state of a gateway for a person (``groupkeeper upstream status``), as data.

The daemon writes it at ``GET /upstream`` of its HTTP port, and the command reads it. The upstream
is the Kafka cluster behind the gateway. The journal is a topic of ours in it, which shows how
transactions with offsets end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.transactions import PendingView, ReadPending
from groupkeeper.coordinator.gateway.brokers import UpstreamCluster
from groupkeeper.coordinator.gateway.gateway import Gateway
from groupkeeper.coordinator.gateway.journal.journal import Journal
from groupkeeper.coordinator.gateway.journal.shard import JournalCoordinator
from groupkeeper.coordinator.gateway.traffic import Traffic
from groupkeeper.coordinator.runtime.loading import Slicer
from groupkeeper.coordinator.runtime.tickets import Awaited

MAX_SHOWN: Final = 100
"""The largest number of transactions that are shown: the oldest ones."""
ANSWER_S: Final = 2.0
"""The time for the shards to answer. During an outage of the store they do not."""
SLICE_MS: Final = 2.0
"""The longest time that pending offsets are processed before other tasks of the event loop run."""


class BrokerStatus(msgspec.Struct, frozen=True):
    """A broker of the upstream, or a port that is kept for a broker that is away."""

    id: int
    address: str
    """The address of the broker; "" if the broker is not in the metadata of the upstream now."""
    port: int | None
    """The port of our listener for the broker. None if no port is kept for the broker: it never had
    one, or another broker got it.
    """
    problem: str
    """Why our answers to clients do not name the broker now; "" if they do."""
    is_up: bool
    """False if the last attempt to connect to the broker failed."""
    connections: int
    sent_bytes: int
    received_bytes: int
    seen_s: float | None
    """How long ago the broker was in the metadata; None if that was before this start."""


class WaitingTransaction(msgspec.Struct, frozen=True):
    """Offsets of one group that wait for the end of a transaction."""

    group: str
    producer_id: int
    producer_epoch: int
    partitions: int
    since_ms: int


class JournalStatus(msgspec.Struct, frozen=True):
    """The journal of transactions, and the offsets that wait for it."""

    topic: str
    topic_id: str
    problem: str
    """Why offsets in transactions are refused now; "" if they are accepted."""
    lag_records: int
    lost: dict[int, str]
    """Shard -> why a person must decide (``groupkeeper upstream resolve``)."""
    ended_transactions: int
    """The number of transactions with offsets that have ended since the start."""
    open: list[WaitingTransaction]
    """The open transactions, the oldest first. At most ``MAX_SHOWN`` are in the list."""
    not_shown: int
    """The number of open transactions that are not in ``open``."""
    silent_shards: int
    """The number of shards that did not answer: they are loading, or the store is slow."""


class MirrorStatus(msgspec.Struct, frozen=True):
    """The state of the mirror, which commits our offsets in the upstream
    too (``upstream.mirror``).
    """

    lag_s: float
    waiting_groups: int
    refused: int


class UpstreamStatus(msgspec.Struct, frozen=True):
    """The state of the whole gateway."""

    problem: str
    """Why clients are not served; "" if they are."""
    cluster_id: str
    answered_s: float | None
    """How long ago a broker answered; None if that was before this start."""
    brokers: list[BrokerStatus]
    journal: JournalStatus
    adopted_groups: int | None
    """The number of groups adopted since the start; None if ``upstream.adopt`` is off."""
    mirror: MirrorStatus | None


NOT_STARTED: Final = "the upstream has no transactions, or has not answered yet"


def broker_statuses(
    gateway: Gateway, cluster: UpstreamCluster | None, ports: Mapping[int, int]
) -> list[BrokerStatus]:
    """Return the brokers of the upstream, and the ports that are kept for brokers that are away."""
    endpoints = {} if cluster is None else cluster.brokers
    found = []
    for broker_id in sorted({*endpoints, *ports}):
        endpoint, target = endpoints.get(broker_id), gateway.targets.get(broker_id)
        traffic = Traffic() if target is None else target.traffic
        problem = gateway.missing.get(broker_id, "")
        if not problem and broker_id not in gateway.fronts:
            problem = (
                "it is not in the upstream's metadata" if cluster else "no broker has answered"
            )
        found.append(
            BrokerStatus(
                id=broker_id,
                address="" if endpoint is None else f"{endpoint.host}:{endpoint.port}",
                port=ports.get(broker_id),
                problem=problem,
                is_up=traffic.is_up,
                connections=traffic.connections,
                sent_bytes=traffic.bytes_out,
                received_bytes=traffic.bytes_in,
                seen_s=gateway.age_s if endpoint is not None else gateway.gone_s(broker_id),
            )
        )
    return found


async def journal_status(journal: Journal, coordinator: JournalCoordinator) -> JournalStatus:
    """Return the state of the journal, with the pending offsets of all shards."""
    pending, silent = await _pending(coordinator, journal.topic.partitions)
    found = await _transactions(pending)
    return JournalStatus(
        topic=journal.topic.name,
        topic_id=journal.topic_id,
        problem=journal.problem if journal.is_started else NOT_STARTED,
        lag_records=journal.lag(),
        lost=dict(journal.lost()),
        ended_transactions=journal.ended_transactions(),
        open=found[:MAX_SHOWN],
        not_shown=max(0, len(found) - MAX_SHOWN),
        silent_shards=silent,
    )


async def _pending(coordinator: JournalCoordinator, shards: int) -> tuple[list[PendingView], int]:
    """Return the pending offsets, and how many shards did not answer."""
    tickets = [Awaited() for _ in range(shards)]
    for shard_id, ticket in enumerate(tickets):
        coordinator.submit(ReadPending(shard_id), ticket)
    done, _ = await asyncio.wait([each.future for each in tickets], timeout=ANSWER_S)
    answers = [each.result() for each in done]
    good = [each for each in answers if each.error is ErrorCode.NONE]
    return [view for each in good for view in each.pending], shards - len(good)


async def _transactions(pending: list[PendingView]) -> list[WaitingTransaction]:
    """Return one row for each group and producer, the oldest first. There may be very many."""
    rows: dict[tuple[str, int], _Open] = {}
    slicer = Slicer(SLICE_MS)
    for view in pending:
        sender = view.group_id, view.producer_id
        row = rows.get(sender)
        if row is None:
            row = rows[sender] = _Open(view.producer_epoch, view.commit_time_ms)
        row.add(view)
        await slicer.pause()
    found = [
        WaitingTransaction(*sender, row.epoch, len(row.partitions), row.since_ms)
        for sender, row in rows.items()
    ]
    return sorted(found, key=lambda each: (each.since_ms, each.group, each.producer_id))


class _Open:
    """The pending offsets of one producer in one group."""

    def __init__(self, epoch: int, since_ms: int) -> None:
        self.epoch = epoch
        self.since_ms = since_ms
        self.partitions: set[tuple[str, int]] = set()

    def add(self, view: PendingView) -> None:
        self.epoch = max(self.epoch, view.producer_epoch)
        self.since_ms = min(self.since_ms, view.commit_time_ms)
        for topic in view.topics:
            self.partitions.update((topic.topic, row[0]) for row in topic.partitions)
