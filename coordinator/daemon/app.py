"""The composition root: it creates all parts, and runs the process from its start to its stop.

start:  bind both ports -> answer HTTP -> open and load the store -> listen for Kafka -> READY
stop:   stop accepting -> answer parked requests, write pending records -> close the store -> exit 0

This file is long because it is the one place that puts all parts together.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.daemon.address import parse_address
from groupkeeper.coordinator.daemon.broker_configs import broker_configs
from groupkeeper.coordinator.daemon.config import Settings, shown_storage_url
from groupkeeper.coordinator.daemon.config_load import ConfigError
from groupkeeper.coordinator.daemon.exposition import Exposition
from groupkeeper.coordinator.daemon.group_metrics import MetricsWalk
from groupkeeper.coordinator.daemon.logs import configure_logging, set_log_level
from groupkeeper.coordinator.daemon.process import (
    CannotGoOn,
    Connections,
    DescriptorProbe,
    LoopLag,
    MemoryTrim,
    StartFailed,
    bind,
    bound_address,
    calm_collector,
    give_back_large_buffers,
    listen,
    raise_file_limit,
)
from groupkeeper.coordinator.daemon.setting_names import coordinators_names, setting_names
from groupkeeper.coordinator.daemon.sources import loop_sources, metric_sources
from groupkeeper.coordinator.daemon.systemd import READY, STOPPING, Systemd, reloading
from groupkeeper.coordinator.daemon.watched_loop import WatchedLoop
from groupkeeper.coordinator.embed.bare_coordinator import BareCoordinator
from groupkeeper.coordinator.handlers.services import Endpoint, Services
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.refusals import HttpRefusals
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import CallbackWatch
from groupkeeper.coordinator.version import VERSION
from groupkeeper.coordinator.web.port import HttpPort
from groupkeeper.coordinator.web.reports import Reports
from groupkeeper.storage.base import OffsetStorage, StorageError
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER, SealSettings
from groupkeeper.storage.open import import_backend, open_storage
from groupkeeper.storage.password_file import read_password

if TYPE_CHECKING:
    from groupkeeper.coordinator.daemon.upstream import Upstream

STOP_SHARE = 0.85
"""The share of ``drain_timeout_ms`` for pending writes, the fold (writing the present state of
groups) and closing the store. The rest is for replies not sent yet and a scrape that still runs."""
REPLIES_SHARE = 0.1
LOADING = "loading"
IMPATIENT_AFTER_S = 1.0
"""A second signal within this time is ignored: a supervisor signals the whole process group, and
`make` forwards its own signal too. A later signal comes from a person who does not want to wait,
and ends the process at once."""

_log = structlog.stdlib.get_logger("groupkeeper")


def run(settings: Settings, reread: Callable[[], Settings]) -> None:
    """Run the daemon until it has stopped. ``reread`` is called on SIGHUP, and returns the settings
    as they are now. Raises StartFailed if the daemon cannot start. Raises CannotGoOn if it must not
    use its store any more: another process has written to it, or its disk failed to sync.
    """
    configure_logging(settings.logging)
    calm_collector()
    give_back_large_buffers()
    import_backend(settings.storage.url)
    watch = CallbackWatch(_log_slow)
    with asyncio.Runner(loop_factory=lambda: WatchedLoop(watch)) as runner:
        runner.run(_live(settings, reread, watch))


async def _live(settings: Settings, reread: Callable[[], Settings], watch: CallbackWatch) -> None:
    try:
        daemon = Daemon(settings, reread, watch)
    except ValueError as error:  # the coordinator refuses the topics of the settings
        raise StartFailed(str(error)) from error
    try:
        await daemon.run()
    except StartFailed:
        raise
    except Exception as error:
        if daemon.has_been_ready:
            raise
        _log.exception("start_crashed")
        raise StartFailed(f"a bug of ours: {error!r}; please report it") from error


def _log_slow(callback: str, cpu_s: float, took_s: float) -> None:
    _log.warning(
        "slow_callback",
        callback=callback,
        cpu_ms=round(cpu_s * 1000),
        took_ms=round(took_s * 1000),
    )


def _log_no_descriptors() -> None:
    _log.error(
        "no_file_descriptor_is_free",
        consequence="new connections on both ports are closed, and the store may fail",
        advice="raise the limit of open files (ulimit -n, LimitNOFILE=)",
    )


def coordinator_config(settings: Settings) -> CoordinatorConfig:
    """Return the coordinator's config for these settings."""
    config = {theirs: _value(settings, name) for name, theirs in coordinators_names().items()}
    upstream, shards = settings.upstream, settings.offsets.topic_num_partitions
    remembered = -(-upstream.max_remembered_groups // shards) if upstream.bootstrap else 0
    config["drain_timeout_ms"] = int(config["drain_timeout_ms"] * STOP_SHARE)
    return CoordinatorConfig(
        **config,
        cluster_id=settings.kafka.cluster_id,
        max_remembered_groups=remembered,
        max_metadata_bytes=settings.kafka.max_buffered_bytes,
        offsets_retention_ms=settings.offsets.retention_minutes * 60_000,
        owner=f"{socket.gethostname()}:{os.getpid()}",
    )


def seal_settings(settings: Settings) -> SealSettings | None:
    """Return the settings for sealing, which moves events from the store to files. None if events
    stay in the store.
    """
    log = settings.log
    is_memory = settings.storage.url == "memory:"
    if log.sealing == "off" or (log.sealing == "auto" and is_memory):
        return None
    minutes = log.retention_minutes
    return SealSettings(
        directory=Path(log.dir).absolute(),
        segment_bytes=log.segment_bytes,
        segment_ms=log.segment_ms,
        retention_ms=FOR_EVER if minutes < 0 else minutes * 60_000,
    )


def allowed_connections(settings: Settings) -> Connections:
    """Raise the limit of open files; return the number of connections that each port may have.

    In gateway mode a client's connection counts twice, because it needs another connection to a
    broker.
    """
    each = 2 if settings.is_gateway else 1
    kafka, http = settings.kafka.max_connections, settings.http.max_connections
    allowed = raise_file_limit(kafka * each, http)
    allowed = Connections(allowed.kafka // each, allowed.http)
    if allowed != (kafka, http):
        _log.warning(
            "fewer_connections_than_configured",
            max_connections=allowed.kafka,
            configured=kafka,
            http_max_connections=allowed.http,
            advice="raise the hard limit of open files (ulimit -Hn, LimitNOFILE=)",
        )
    return allowed


def server_limits(settings: Settings, max_connections: int) -> ServerLimits:
    """Return the limits of the Kafka port for these settings."""
    names = {each.name for each in dataclasses.fields(ServerLimits)}
    limits = settings.kafka.model_dump(include=names)
    return ServerLimits(**limits | {"max_connections": max_connections})


class Daemon:
    """One run of the process, from start to stop."""

    def __init__(
        self, settings: Settings, reread: Callable[[], Settings], watch: CallbackWatch
    ) -> None:
        """Create the parts, bind both ports and listen for HTTP. Needs a running loop. ``run``
        opens the store. Raises StartFailed if a port or a setting cannot be used."""
        self._settings = settings
        self._reread = reread
        self._started_s = time.monotonic()
        self._stopping = asyncio.Event()
        self._signalled_s: float | None = None
        self._phase: str | None = LOADING
        """The reason why the daemon itself does not serve groups: it starts, stops or has failed.
        Otherwise None."""
        self.has_been_ready = False
        self._failure = ""
        """The reason why the daemon stops without a signal. Empty otherwise."""
        self._http_socket = bind(parse_address(settings.http.listen), "http.listen")
        listen(self._http_socket, "http.listen")
        self._kafka_socket = bind(parse_address(settings.kafka.listen), "kafka.listen")
        self._storage = open_store(settings)
        self._topics = topics = _topics(settings)
        self._coordinator = BareCoordinator(self._storage, coordinator_config(settings), topics)
        self._coordinator.when_store_is_given_up(self._store_given_up)
        self._watch = watch
        allowed = allowed_connections(settings)
        limits = server_limits(settings, allowed.kafka)
        services = self._services(topics)
        self._kafka = KafkaServer(services, limits, watch=watch)
        self._upstream: Upstream | None = None
        if settings.is_gateway:
            # imported here, so that a start without a gateway does not wait for the import
            from groupkeeper.coordinator.daemon.upstream import Upstream

            self._upstream = Upstream(settings, services, self._coordinator, topics)
        self._kafka.budget.freed = MemoryTrim().soon
        self._lag = LoopLag()
        self._descriptors = DescriptorProbe(_log_no_descriptors)
        self._systemd = Systemd()
        self._http_refusals = HttpRefusals(asyncio.get_running_loop().time)
        self._web = HttpPort(
            self._http_socket,
            self._reports(),
            max_connections=allowed.http,
            request_timeout_ms=settings.http.request_timeout_ms,
            refuse=self._http_refusals,
        )

    async def run(self) -> None:
        """Start, serve until a signal, and drain.

        Raises StartFailed if the start fails. Raises CannotGoOn if the daemon must not use its
        store any more (``when_store_is_given_up``).
        """
        self._handle_signals()
        self._web.start()
        self._lag.start()
        self._descriptors.start()
        try:
            if await self._load():
                await self._serve()
                self._phase = None
                self.has_been_ready = True
                self._report_ready()
                self._web.serve()
                self._systemd.start_watchdog()
                check = asyncio.create_task(self._check_storage())
                await self._stopping.wait()
                check.cancel()
        finally:
            await self._drain()
        if self._failure:
            raise CannotGoOn(self._failure)

    async def _serve(self) -> None:
        if self._upstream is None:
            listen(self._kafka_socket, "kafka.listen")
            await self._kafka.start(self._kafka_socket)
        else:
            self._upstream.start(self._kafka, self._kafka_socket)

    def _services(self, topics: Topics) -> Services:
        kafka, static = self._settings.kafka, self._settings.static
        advertised = Endpoint(*parse_address(kafka.advertised)) if kafka.advertised else None
        return Services(
            coordinator=self._coordinator.router,
            topics=topics,
            broker_configs=broker_configs(self._settings),
            node_id=self._settings.node_id,
            cluster_id=kafka.cluster_id,
            advertised=advertised,
            serves_consumer_groups="consumer" in self._settings.group.rebalance_protocols,
            consumer_assignors=self._settings.group.consumer_assignors,
            pattern_error=self._coordinator.workshop.patterns.error,
            auto_create_topics=static.auto_create_topics,
            num_partitions=static.num_partitions,
            max_request_elements=kafka.max_request_elements,
            max_reply_bytes=kafka.max_reply_bytes,
        )

    def _reports(self) -> Reports:
        backend = urlsplit(self._settings.storage.url).scheme
        sources = metric_sources(self._kafka.stats, self._coordinator, self._storage, backend)
        sources |= loop_sources(self._lag, self._watch)
        sources |= {
            "http_connections": lambda: len(self._web),
            "http_refused": self._http_refusals.by_reason,
            "descriptor_shortages": lambda: self._descriptors.shortages,
        }
        if self._upstream is not None:
            sources |= self._upstream.metric_sources()
        metrics, topics = self._settings.metrics, self._topics
        walk = None
        if metrics.groups != "off":
            walk = MetricsWalk(
                self._coordinator.live_groups,
                lambda: topics.image.by_name.values(),
                topics.end_offset,
                metrics.groups,
                has_records=self._settings.is_gateway,
            )
        exposition = Exposition(sources, metrics.max_series, walk)
        reports = Reports(metrics=exposition.page, not_ready=self._why_not_ready)
        if self._upstream is None:
            return reports
        return dataclasses.replace(
            reports, state=self._upstream.state, upstream=self._upstream.page
        )

    def _why_not_ready(self) -> str | None:
        if self._phase is not None:
            if self._phase == LOADING:
                return self._coordinator.start_waits_for or LOADING
            return self._phase
        not_ready = self._coordinator.not_ready
        if not_ready is None and self._upstream is not None:
            return self._upstream.gateway.not_ready
        return not_ready

    # --- start ------------------------------------------------------------------------------------

    async def _load(self) -> bool:
        """Open and load the store. Return False if a signal stopped the load. Raises StartFailed if
        the store cannot be used.
        """
        loading = asyncio.create_task(self._coordinator.start())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            await asyncio.wait([loading])
            return False
        try:
            loading.result()
        except StorageError as error:
            raise StartFailed(_of_store(error)) from error
        except ValueError as error:
            raise StartFailed(str(error)) from error
        # loaded objects live long, so the collector need not walk a million offsets repeatedly
        gc.freeze()
        return True

    def _report_ready(self) -> None:
        self._systemd.notify(READY, f"serving Kafka on {bound_address(self._kafka_socket)}")
        _log.info(
            "ready",
            version=VERSION,
            kafka=str(bound_address(self._kafka_socket)),
            http=str(bound_address(self._http_socket)),
            storage=shown_storage_url(self._settings.storage.url),
            groups=sum(self._coordinator.groups_by_state().values()),
            start_ms=round((time.monotonic() - self._started_s) * 1000),
        )

    async def _check_storage(self) -> None:
        """Check the store if its last process did not end cleanly, and log damage. Requests are
        served during the check.
        """
        try:
            problem = await self._storage.check_after_unclean_end()
        except StorageError as error:
            problem = str(error)
        if problem is not None:
            _log.error("store_damaged", problem=problem)

    # --- signals ----------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _stop(self, name: str) -> None:
        now_s = time.monotonic()
        if self._signalled_s is not None:
            if now_s - self._signalled_s < IMPATIENT_AFTER_S:
                return
            _log.warning("stopped_at_once", signal=name)
            os._exit(1)
        _log.info("stopping", signal=name)
        self._signalled_s = now_s
        self._begin_stop("stopping")

    def _store_given_up(self) -> None:
        self._failure = self._coordinator.refusal
        _log.error("store_given_up", problem=self._failure)
        self._begin_stop(self._failure)

    def _begin_stop(self, phase: str) -> None:
        self._systemd.notify(STOPPING, "answering parked requests, writing pending records")
        self._phase = phase
        self._stopping.set()
        limit_s = self._settings.daemon.drain_timeout_ms / 1000
        asyncio.get_running_loop().call_later(limit_s, self._exit_undrained)

    def _exit_undrained(self) -> None:
        # every request that got a success is written, so this counts as a clean end
        _log.warning("drain_cut", timeout_ms=self._settings.daemon.drain_timeout_ms)
        os._exit(1 if self._failure else 0)

    def _reload(self) -> None:
        if self._phase is not None:  # during a start or a stop, READY would be false
            self._read_again()
            return
        self._systemd.notify(reloading())
        self._read_again()
        self._systemd.notify(READY)

    def _read_again(self) -> None:
        try:
            new = self._reread()
        except ConfigError as error:
            _log.error("settings_not_reloaded", problems=error.problems)
            return
        set_log_level(new.logging)
        old = self._settings
        changed = [name for name in setting_names() if _value(new, name) != _value(old, name)]
        waiting = [name for name in changed if name != "logging.level"]
        _log.warning("settings_reloaded", log_level=new.logging.level, needs_restart=waiting)

    # --- stop -------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        limit_ms = self._settings.daemon.drain_timeout_ms
        if self._upstream is not None:
            await self._upstream.stop()
        self._kafka.stop_accepting()
        try:
            await self._coordinator.stop()
        except StorageError as error:
            _log.warning("store_not_closed", problem=str(error))
        await self._kafka.wait_answered(limit_ms / 1000 * REPLIES_SHARE)
        self._kafka.close_all()
        self._kafka_socket.close()
        await self._web.stop()
        self._lag.stop()
        self._descriptors.stop()
        self._systemd.stop_watchdog()
        _log.info("stopped")


def _topics(settings: Settings) -> Topics:
    if settings.is_gateway:
        from groupkeeper.coordinator.gateway.gateway_topics import GatewayTopics

        return GatewayTopics()
    return Topics(
        ConfiguredTopic(topic.name, topic.partitions, topic.end_offset)
        for topic in settings.static.topics
    )


def open_store(settings: Settings) -> OffsetStorage:
    """Return the store of these settings, which is not open yet. Raises StartFailed if these
    settings describe no usable store.
    """
    try:
        return open_storage(
            settings.storage.url,
            append_timeout_ms=settings.storage.append_timeout_ms,
            seal=seal_settings(settings),
            seal_in_process=False,
            seal_if_possible=settings.log.sealing == "auto",
            node_id=settings.node_id,
            lease_ttl_ms=settings.cluster.lease_ttl_ms,
            password=read_password(settings.storage.password_file),
        )
    except StorageError as error:
        raise StartFailed(_of_store(error)) from error


def _of_store(error: StorageError) -> str:
    """Return the message of a store's error. If the message does not begin with a setting, put
    ``storage.url`` before it.
    """
    text = str(error)
    return text if text.startswith(("storage.", "log.", "kafka.")) else f"storage.url: {text}"


def _value(settings: Settings, name: str) -> Any:
    section, key = name.split(".")
    return getattr(getattr(settings, section), key)
