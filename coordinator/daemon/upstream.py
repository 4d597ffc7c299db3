"""Puts the parts of gateway mode together, for ``app``."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import structlog

from groupkeeper.coordinator.daemon.address import parse_address
from groupkeeper.coordinator.daemon.process import StartFailed
from groupkeeper.coordinator.daemon.upstream_journal import UpstreamJournal
from groupkeeper.coordinator.daemon.upstream_settings import parse_ports
from groupkeeper.coordinator.gateway.adoption import Adoption
from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers
from groupkeeper.coordinator.gateway.ends import UpstreamEnds
from groupkeeper.coordinator.gateway.gate import GroupGate
from groupkeeper.coordinator.gateway.gateway import Gateway
from groupkeeper.coordinator.gateway.gateway_topics import GatewayTopics
from groupkeeper.coordinator.gateway.mirror import UpstreamMirror
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from groupkeeper.coordinator.gateway.security import SecurityError, read_security
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.gateway.status import (
    MirrorStatus,
    UpstreamStatus,
    broker_statuses,
    journal_status,
)
from groupkeeper.coordinator.gateway.upstream_groups import UpstreamGroups
from groupkeeper.coordinator.handlers.services import Endpoint, Services
from groupkeeper.coordinator.web.shared_page import SharedPage

_log = structlog.get_logger("groupkeeper.gateway")

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from groupkeeper.coordinator.cluster.topics import Topics
    from groupkeeper.coordinator.daemon.config import Settings
    from groupkeeper.coordinator.daemon.metrics import Series, Source
    from groupkeeper.coordinator.embed.bare_coordinator import BareCoordinator
    from groupkeeper.coordinator.gateway.traffic import Traffic
    from groupkeeper.coordinator.server.server import KafkaServer


def gateway_settings(settings: Settings) -> GatewaySettings:
    """Return the settings of the gateway's parts. Raises StartFailed if a file cannot be used."""
    upstream = settings.upstream
    try:
        security = read_security(
            tls=upstream.tls,
            ca_file=upstream.ca_file,
            cert_file=upstream.cert_file,
            key_file=upstream.key_file,
            mechanism=upstream.sasl,
            user=upstream.user,
            password_file=upstream.password_file,
        )
    except SecurityError as error:
        raise StartFailed(str(error)) from error
    return GatewaySettings(
        bootstrap=tuple(Endpoint(*address) for address in upstream.addresses),
        ports=parse_ports(upstream.ports),
        listen_host=parse_address(settings.kafka.listen).host,
        advertised_host=upstream.advertised_host,
        security=security,
        identity=upstream.identity,
        connect_timeout_ms=upstream.connect_timeout_ms,
        metadata_refresh_ms=upstream.metadata_refresh_ms,
        window_bytes=upstream.window_bytes,
        max_frame_bytes=upstream.max_frame_bytes,
        journal_topic=upstream.journal_topic,
    )


class Upstream:
    """The upstream cluster and the gateway in front of it."""

    def __init__(
        self,
        settings: Settings,
        services: Services,
        coordinator: BareCoordinator,
        topics: Topics,
    ) -> None:
        """Create the parts, and read the files that the settings name. Raises StartFailed if a file
        cannot be used.
        """
        assert isinstance(topics, GatewayTopics), "those of another mode"
        config = gateway_settings(settings)
        self._coordinator = coordinator
        self._user = settings.upstream.user
        self._identity = config.identity
        record = coordinator.upstream_record
        observed = ObservedTopics(topics)
        self.brokers = brokers = UpstreamBrokers(config, observed, record)
        groups = UpstreamGroups(brokers)
        live_groups, is_ours = coordinator.live_groups, lambda: brokers.is_ours
        self._adopts = settings.upstream.adopt
        self.adoption = Adoption(
            coordinator,
            groups,
            observed,
            lambda: topics.image,
            coordinator.add_cluster_events,
            coordinator.config.max_group_bytes,
            adopts=self._adopts,
        )
        self.mirror: UpstreamMirror | None = None
        if settings.upstream.mirror:
            self.mirror = UpstreamMirror(groups, live_groups, is_ours, coordinator.is_loading)
            topics.gateway_ends.when_committed = self.mirror.committed
        self._ends = UpstreamEnds(brokers, topics, live_groups, is_ours)
        self._reading: asyncio.Task[None] | None = None
        # shared by all requests that wait for it, because a page asks all shards
        self._page = SharedPage(self._make_page)
        self._refresh_ms = config.metadata_refresh_ms
        gate = GroupGate(coordinator.router, lambda: topics.image, observed, self.adoption)
        services = replace(services, coordinator=gate)
        self._journal = journal = UpstreamJournal(
            config, gate, coordinator.config.shards, brokers, lambda: topics.image
        )
        gate.catch_up = journal.journal.catch_up
        self.gateway = Gateway(
            config, services, record, brokers, journal.divide, transactions=journal.routes
        )

    def start(self, server: KafkaServer, own_sock: socket.socket) -> None:
        """Start to ask the upstream for its brokers and topics. Listeners open when the brokers are
        known. ``own_sock`` is the bound socket of our own node.
        """
        if self._identity == "client":
            _log.warning(
                "upstream_group_acls_have_no_effect",
                consequence="the upstream authenticates each client, and its ACLs hold for data. "
                "Every client that it knows may use every group here",
            )
        elif self._user:
            _log.warning(
                "upstream_rights_are_shared",
                user=self._user,
                consequence="every client that reaches our ports has the rights of this user at "
                "the upstream, and its ACLs about groups have no effect here",
            )
        self.brokers.start()
        self.gateway.start(server, own_sock)
        self._journal.start()
        reading = self._ends.run(self._refresh_ms)
        self._reading = asyncio.get_running_loop().create_task(reading)
        if self.mirror is not None:
            self.mirror.start()

    def state(self) -> str:
        """Return the state of the upstream in one line."""
        age_s = self.gateway.age_s
        if age_s is None:
            return "the upstream has not answered since the start; groups are served"
        answered = f"the upstream answered {age_s:.0f} s ago"
        parts = [answered, self.gateway.missing_brokers, self._journal.state()]
        return "; ".join(filter(None, parts))

    async def page(self) -> bytes:
        """Return the state that ``groupkeeper upstream status`` shows, as JSON."""
        return await self._page.page()

    async def _make_page(self) -> bytes:
        record, mirror = self._coordinator.upstream_record, self.mirror
        status = UpstreamStatus(
            problem=self.gateway.not_ready or "",
            cluster_id=record.cluster_id,
            answered_s=self.gateway.age_s,
            brokers=broker_statuses(self.gateway, self.brokers.cluster, record.ports),
            journal=await journal_status(self._journal.journal, self._coordinator),
            adopted_groups=self.adoption.adopted if self._adopts else None,
            mirror=None if mirror is None else _mirror_status(mirror),
        )
        return msgspec.json.encode(status)

    def metric_sources(self) -> dict[str, Source]:
        traffic, adoption, mirror = self._by_broker, self.adoption, self.mirror
        return {
            "upstream_up": lambda: traffic(lambda each: float(each.is_up)),
            "upstream_metadata_age_seconds": lambda: self.gateway.age_s or 0.0,
            "upstream_brokers_without_listener": lambda: len(self.gateway.missing),
            "upstream_connections": lambda: traffic(lambda each: each.connections),
            "upstream_sent_bytes": lambda: traffic(lambda each: each.bytes_out),
            "upstream_received_bytes": lambda: traffic(lambda each: each.bytes_in),
            "upstream_failures": lambda: {
                (str(broker_id), reason): float(count)
                for broker_id, target in self.gateway.targets.items()
                for reason, count in target.traffic.failures.items()
            },
            "upstream_journal_lost_shards": lambda: len(self._journal.journal.lost()),
            "upstream_open_transactions": self._journal.journal.open_transactions,
            "upstream_ended_transactions": self._journal.journal.ended_transactions,
            "upstream_journal_lag_records": self._journal.journal.lag,
            "upstream_adopted_groups": lambda: adoption.adopted,
            "upstream_mirror_lag_seconds": lambda: mirror.lag_s if mirror else 0.0,
            "upstream_mirror_refused": lambda: mirror.refused if mirror else 0,
        }

    def _by_broker(self, value: Callable[[Traffic], float]) -> Series:
        targets = self.gateway.targets
        return {(str(each),): value(target.traffic) for each, target in targets.items()}

    async def stop(self) -> None:
        await self.gateway.stop()
        await self._page.stop()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self.mirror is not None:
            await self.mirror.stop()
        await self._journal.stop()
        await self.brokers.stop()


def _mirror_status(mirror: UpstreamMirror) -> MirrorStatus:
    return MirrorStatus(mirror.lag_s, mirror.waiting_groups, mirror.refused)
