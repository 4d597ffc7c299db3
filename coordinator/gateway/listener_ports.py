"""The ports of the listeners in front of upstream brokers.

The upstream is the Kafka cluster behind the gateway. The port of a broker is stored durably before
its listener opens, so that clients find the broker after a restart. If no port is free, the broker
that has been away for longest loses its port.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import structlog

from groupkeeper.coordinator.cluster.topics import OURSELVES
from groupkeeper.coordinator.core.requests.topics import ChangeUpstream
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.runtime.line_limit import LineLimit

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.upstream_record import UpstreamRecord
    from groupkeeper.coordinator.gateway.brokers import UpstreamCluster

_log = structlog.get_logger("groupkeeper.gateway")

Bind: TypeAlias = Callable[[str, int], socket.socket | None]
_Found: TypeAlias = tuple[int, socket.socket, int | None]
"""A port, the socket that listens on it, and the broker that loses this port (None: no broker)."""


def bind_port(host: str, port: int) -> socket.socket | None:
    """Return a socket that listens on this address; None if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen()
    except OSError:
        sock.close()
        return None
    sock.setblocking(False)
    return sock


class ListenerPorts:
    """Opens a socket for the listener of each broker."""

    def __init__(
        self,
        settings: GatewaySettings,
        record: UpstreamRecord,
        store: Callable[[ChangeUpstream], Awaitable[None]],
        seen_s: Mapping[int, float],
        lines: LineLimit,
        bind: Bind = bind_port,
    ) -> None:
        """``store`` makes a change durable. ``seen_s`` has the time at which each broker of this
        run was last in the metadata of the upstream.
        """
        self._settings = settings
        self._record = record
        self._store = store
        self._seen_s = seen_s
        self._lines = lines
        self._bind = bind
        self.missing: dict[int, str] = {}
        """Broker -> the reason why it has no listener."""

    def bound_before(self) -> Iterator[tuple[int, socket.socket]]:
        """Yield the brokers of earlier runs, each with a socket that listens on its port. Brokers
        whose port cannot be used are left out, and not logged.
        """
        for broker_id, port in self._record.ports.items():
            in_range = port in self._settings.ports
            sock = self._bind(self._settings.listen_host, port) if in_range else None
            if sock is not None:
                yield broker_id, sock

    async def bound(self, broker_id: int, cluster: UpstreamCluster) -> socket.socket | None:
        """Return a socket that listens on the port of a broker, after the port is durable.

        Return None if no socket can listen now: ``missing`` then has the reason, and the caller
        tries again later.
        """
        port = self._record.ports.get(broker_id)
        if port is not None and port in self._settings.ports:
            sock = self._bind(self._settings.listen_host, port)
            if sock is None:
                self.missing[broker_id] = f"port {port} is taken"
                if self._lines.allow(f"taken {port}") is not None:
                    _log.error("listener_port_taken", broker=broker_id, port=port)
            return sock
        found = self._bind_free() or self._bind_of_gone(cluster)
        if found is None:
            shown = _shown(self._settings)
            self.missing[broker_id] = f"no port of upstream.ports ({shown}) is free"
            if self._lines.allow(f"no port {broker_id}") is not None:
                _log.error("listener_ports_used_up", broker=broker_id, ports=shown)
            return None
        port, sock, gone_id = found
        taken_back = () if gone_id is None else ((gone_id, 0),)
        # This stays the reason if the shard is loaded meanwhile and then has another port.
        self.missing[broker_id] = f"its port {port} is not in the store yet"
        try:
            await self._store(ChangeUpstream(OURSELVES, (*taken_back, (broker_id, port))))
        except BaseException:
            sock.close()
            raise
        if self._record.ports.get(broker_id) != port:
            sock.close()
            return None
        if gone_id is not None:
            _log.warning("listener_port_reused", broker=broker_id, port=port, gone_broker=gone_id)
        return sock

    def _bind_free(self) -> _Found | None:
        """Listen on the first usable port that no broker has. Return None if there is none."""
        used = set(self._record.ports.values())
        for port in self._settings.ports:
            if (
                port not in used
                and (sock := self._bind(self._settings.listen_host, port)) is not None
            ):
                return port, sock, None
        return None

    def _bind_of_gone(self, cluster: UpstreamCluster) -> _Found | None:
        """Listen on the port of the broker that has been away for longest. Return None if no such
        port can be used. Brokers that were not seen in this run count as away for longest.
        """
        ports = self._record.ports
        gone = [broker_id for broker_id in ports if broker_id not in cluster.brokers]
        for broker_id in sorted(gone, key=lambda each: (self._seen_s.get(each, -1.0), each)):
            port = ports[broker_id]
            if (
                port in self._settings.ports
                and (sock := self._bind(self._settings.listen_host, port)) is not None
            ):
                return port, sock, broker_id
        return None


def _shown(settings: GatewaySettings) -> str:
    return f"{settings.ports.start}-{settings.ports.stop - 1}"
