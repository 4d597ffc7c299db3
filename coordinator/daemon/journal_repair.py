"""Opens the store and the journal of a gateway for ``groupkeeper upstream resolve``, without a
listener. The journal is a topic of the upstream cluster with the offsets of open transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.daemon.app import coordinator_config, open_store
from groupkeeper.coordinator.daemon.logs import configure_logging
from groupkeeper.coordinator.daemon.process import StartFailed
from groupkeeper.coordinator.daemon.upstream import gateway_settings
from groupkeeper.coordinator.daemon.upstream_journal import UpstreamJournal
from groupkeeper.coordinator.embed.bare_coordinator import BareCoordinator
from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers
from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.gateway_topics import GatewayTopics
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.storage.base import StorageError

if TYPE_CHECKING:
    from groupkeeper.coordinator.daemon.config import Settings
    from groupkeeper.coordinator.gateway.journal.journal import Journal


TELL_EVERY_S: Final = 0.2
"""The pause between two checks for a problem of the store."""


class RepairFailed(Exception):
    """The store, the upstream or the journal has failed, or has not answered in time. The message
    is one line.
    """


class _Stored:
    """The facts about the upstream that ``UpstreamBrokers`` asks for (``StoredCluster``)."""

    cluster_id = ""
    """The id of the cluster to which the store belongs. It is "" until ``_brokers`` has found that
    the upstream is this cluster. Until then the topics of the upstream are not read."""


@asynccontextmanager
async def opened_journal(
    settings: Settings, timeout_s: float, tell: Callable[[str], None]
) -> AsyncIterator[tuple[Journal, BareCoordinator]]:
    """Open the store and the journal as a start of the daemon does, but serve nobody.

    ``tell`` is called with the reason, in one line, if the store cannot be used yet, for example
    because its disk is full. The start goes on, because somebody may make room.

    Raises RepairFailed if the start and the work of the caller together take longer than
    ``timeout_s``, or fail.
    """
    # The command prints what an operator must know, so the journal need not log it.
    configure_logging(settings.logging.model_copy(update={"level": "critical"}))
    topics = GatewayTopics()
    journal: UpstreamJournal | None = None
    coordinator: BareCoordinator | None = None
    brokers: UpstreamBrokers | None = None
    telling: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(timeout_s):
            store = open_store(_without_sealing(settings))
            coordinator = BareCoordinator(store, coordinator_config(settings), topics)
            telling = asyncio.create_task(_tell_problems(coordinator, tell))
            await coordinator.start()
            brokers = await _brokers(settings, coordinator, topics)
            journal = UpstreamJournal(
                gateway_settings(settings),
                coordinator,
                coordinator.config.shards,
                brokers,
                lambda: topics.image,
            )
            journal.journal.start()
            yield journal.journal, coordinator
    except TimeoutError as error:
        raise RepairFailed(_late(timeout_s, coordinator, journal)) from error
    except StorageError as error:
        raise RepairFailed(f"storage.url: {error}") from error
    except StartFailed as error:
        raise RepairFailed(str(error)) from error
    except (BrokerError, ProtocolError) as error:
        raise RepairFailed(f"the upstream does not answer: {error}") from error
    finally:
        if telling is not None:
            telling.cancel()
        if journal is not None:
            await journal.stop()
        if brokers is not None:
            await brokers.stop()
        if coordinator is not None:
            await coordinator.stop()


async def _tell_problems(coordinator: BareCoordinator, tell: Callable[[str], None]) -> None:
    """Tell each problem of the store once, soon after it begins."""
    told: set[str] = set()
    while True:
        problem = coordinator.start_waits_for
        if not problem and coordinator.stats.appends_failed:
            problem = coordinator.not_ready or ""
        if problem and problem not in told:
            told.add(problem)
            tell(problem)
        await asyncio.sleep(TELL_EVERY_S)


def _without_sealing(settings: Settings) -> Settings:
    """Return the settings without sealing (moving events to files). This process runs only for a
    short time, and the next daemon seals.
    """
    return settings.model_copy(update={"log": settings.log.model_copy(update={"sealing": "off"})})


async def _brokers(
    settings: Settings, coordinator: BareCoordinator, topics: GatewayTopics
) -> UpstreamBrokers:
    stored = _Stored()
    brokers = UpstreamBrokers(gateway_settings(settings), ObservedTopics(topics), stored)
    await brokers.poll()
    known = coordinator.upstream_record.cluster_id
    if brokers.cluster is None or brokers.cluster.cluster_id != known:
        there = "nobody knows" if brokers.cluster is None else brokers.cluster.cluster_id
        raise RepairFailed(
            f"upstream.bootstrap leads to the cluster {there}, and the store belongs to {known!r}"
        )
    stored.cluster_id = known  # the journal asks no other cluster
    return brokers


def _late(
    timeout_s: float, coordinator: BareCoordinator | None, journal: UpstreamJournal | None
) -> str:
    late = f"not done within {timeout_s:g} s"
    if coordinator is None:
        return f"{late}: the store did not open"
    if journal is None:
        return f"{late}: {coordinator.start_waits_for or 'the upstream has not answered'}"
    problem = coordinator.not_ready or journal.journal.problem
    if not problem and coordinator.stats.appends_failed:
        problem = "writes to the store failed"
    if not problem:
        problem = "not all partitions of the journal can be read"
    return f"{late}: {problem}. Decisions that were written stay: run the command again"
