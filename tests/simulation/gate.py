"""The Kafka port of a process in a world of consumer groups. Each request comes on its own
connection, as bytes that an independent codec writes and reads.
"""

from __future__ import annotations

import asyncio
import uuid
from random import Random
from typing import TYPE_CHECKING, Any, cast

from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import CallbackWatch
from tests.simulation.client_codec import NEW, decode, encode

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.topics import Topics
    from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
    from tests.simulation.consumer_world import Call


class Gate:
    """Accepts requests for one process."""

    def __init__(self, coordinator: GroupCoordinator, topics: Topics, random: Random) -> None:
        services = Services(
            coordinator=coordinator,
            topics=topics,
            serves_consumer_groups=True,
            consumer_assignors=("uniform", "range"),
            pattern_error=coordinator.workshop.patterns.error,
            mint=lambda: uuid.UUID(int=random.getrandbits(128)),
        )
        watch = CallbackWatch(read_s=asyncio.get_running_loop().time)
        self._shared = KafkaServer(services, ServerLimits(), watch=watch).shared

    def send(self, request: Any, call: Call) -> None:
        """Deliver a request. Its answer resolves the call."""
        connection = Connection(self._shared)
        connection.connection_made(cast("Any", _OneReply(connection, request, call)))
        connection.data_received(encode([request], NEW, 1))


class _OneReply:
    """The server's side of a socket whose client waits for one reply."""

    def __init__(self, connection: Connection, request: Any, call: Call) -> None:
        self._connection = connection
        self._request = request
        self._call = call

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 40_000) if name == "peername" else ("192.0.2.1", 9092)

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert high > 0

    def write(self, data: bytes) -> None:
        (result,) = decode([self._request], NEW, data)
        self._call.resolve(result)
        self.close()

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: no bytes follow the request."""

    def resume_reading(self) -> None:
        """Do nothing: no bytes follow the request."""
