"""A gateway with a proxy in front of each port, which keeps every frame that a client receives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.wire.recording_proxy import Frame, RecordingProxy

if TYPE_CHECKING:
    from tests.helpers.clients.real_kafka import RealKafka

OUTSIDE = "127.0.0.2"
"""The address of the proxies. The gateway names it to clients, and listens at 127.0.0.1."""

UPSTREAM_HOST = "localhost"
"""The host in the addresses of the upstream broker. No other address of a test has it."""


class RecordedGateway:
    """The daemon in front of one broker, and a proxy in front of each of its two ports."""

    def __init__(self, directory: Path, upstream: RealKafka) -> None:
        self.upstream = upstream
        self.daemon = a_gateway(directory, upstream.bootstrap)
        self.port = self.daemon.port
        self.broker_port = int(str(self.daemon.settings["upstream.ports"]).partition("-")[0])
        self.daemon.settings["kafka.advertised"] = self.bootstrap
        self._proxies: list[RecordingProxy] = []

    @property
    def bootstrap(self) -> str:
        """Return HOST:PORT for clients."""
        return f"{OUTSIDE}:{self.port}"

    def start(self) -> RecordedGateway:
        self.daemon.start()
        ports = (self.port, self.broker_port)
        self._proxies = [RecordingProxy(port, port, OUTSIDE) for port in ports]
        return self

    def stop(self) -> None:
        for proxy in self._proxies:
            proxy.stop()
        self.daemon.stop()

    def received(self) -> list[Frame]:
        """Return the replies that clients have received."""
        return [f for proxy in self._proxies for f in proxy.frames if f.direction == "response"]

    def leaks(self) -> list[Frame]:
        """Return the replies that name an address of the upstream."""
        return [frame for frame in self.received() if names_upstream(frame.data, self.upstream)]


def names_upstream(data: bytes, upstream: RealKafka) -> bool:
    """Return True if bytes contain the host that the broker names, or one of its ports as text."""
    texts = [UPSTREAM_HOST, str(upstream.port), str(upstream.port + 1)]
    return any(text.encode() in data for text in texts)
