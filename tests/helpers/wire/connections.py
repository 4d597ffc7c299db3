"""Connections without sockets: a transport that records, and a server that never listens."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.listener import PLAINTEXT, Listener
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.shared import Shared
from groupkeeper.coordinator.server.watch import CallbackWatch
from tests.helpers.wire.handling import FakeCoordinator, decode, make_services
from tests.helpers.wire.raw_client import encode_request


class FakeTransport:
    """Records what a connection does to its transport."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.writes: list[bytes] = []
        self.is_closed = False
        self.is_aborted = False
        self.is_reading = True
        self.unsent_bytes = 0
        """The number of bytes in the write buffer. A test sets it if its peer reads nothing."""
        self.takes: Callable[[], None] | None = None
        """Called when the write buffer is too full. A test sets it if its peer reads nothing."""

    def get_extra_info(self, name: str) -> Any:
        return (self.peer, 40_000) if name == "peername" else ("192.0.2.1", 9092)

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.high, self.low = high, low

    def writelines(self, pieces: Sequence[bytes | memoryview]) -> None:
        self.write(b"".join(pieces))

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "written after closing"
        self.writes.append(data)
        if self.takes is not None and len(data) > self.high:
            self.takes()

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def pause_reading(self) -> None:
        assert self.is_reading, "paused twice"
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading, "resumed twice"
        self.is_reading = True


class Peer:
    """The client's side of a connection without a socket."""

    def __init__(
        self,
        server: KafkaServer,
        address: str = "127.0.0.1",
        make_connection: Callable[[Shared, Listener], Connection] = Connection,
        listener: Listener = PLAINTEXT,
    ) -> None:
        self.transport = FakeTransport(address)
        self.connection = make_connection(server.shared, listener)
        self.connection.connection_made(cast("Any", self.transport))

    def send(self, *frames: bytes) -> None:
        """Deliver all frames in one call."""
        self.connection.data_received(b"".join(frames))

    def replies(self) -> list[int]:
        """Return the correlation ids of all replies, in order."""
        return [struct.unpack_from(">i", frame, 4)[0] for frame in self.frames()]

    def frames(self) -> list[bytes]:
        data = b"".join(self.transport.writes)
        frames = []
        while data:
            (size,) = struct.unpack_from(">i", data)
            frames.append(data[: 4 + size])
            data = data[4 + size :]
        return frames

    def decoded(self, api: str, version: int, index: int = -1) -> dict[str, Any]:
        frame = self.frames()[index]
        return decode(api, version, frame, struct.unpack_from(">i", frame, 4)[0])


def heartbeat(correlation_id: int, group_id: str = "g") -> bytes:
    values = {"group_id": group_id, "generation_id": 1, "member_id": "m"}
    return encode_request("heartbeat", 4, values, correlation_id, "app")


def join(correlation_id: int, group_id: str = "g") -> bytes:
    values = {
        "group_id": group_id,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return encode_request("join_group", 9, values, correlation_id, "app")


def commit(correlation_id: int, group_id: str = "g") -> bytes:
    topics = [
        {
            "name": "orders",
            "partitions": [
                {
                    "partition_index": 0,
                    "committed_offset": correlation_id,
                    "committed_metadata": "",
                }
            ],
        }
    ]
    values = {
        "group_id": group_id,
        "generation_id_or_member_epoch": 1,
        "member_id": "m",
        "topics": topics,
    }
    return encode_request("offset_commit", 9, values, correlation_id, "app")


def fake(server: KafkaServer) -> FakeCoordinator:
    """Return the fake coordinator of a server from ``make_server``."""
    assert isinstance(server.services.coordinator, FakeCoordinator)
    return server.services.coordinator


def make_server(answer: Any = None, services: Services | None = None, **limits: int) -> KafkaServer:
    """Return a server with fakes, which never listens. Call it inside the loop."""
    watch = CallbackWatch(read_s=lambda: 0.0)  # nothing depends on how fast the machine is
    return KafkaServer(services or make_services(answer), ServerLimits(**limits), watch=watch)


def kinds(requests: list[Request]) -> list[str]:
    """Return the class names of requests."""
    return [type(request).__name__ for request in requests]
