"""A small Kafka client for the command line: one request at a time, to any broker.

Each request has the highest version of its API that this client and the broker know. Every failure
raises ServerError with a message of one line.
"""

from __future__ import annotations

import socket
import time
from typing import Any, Final, NamedTuple, Self

from groupkeeper.coordinator.core.errors import ErrorCode, error_name
from groupkeeper.coordinator.daemon.address import HostPort
from groupkeeper.coordinator.version import CLI_CLIENT_ID, VERSION
from groupkeeper.protocol.asking import read_response, write_request
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.writer import Row

MAX_ANSWER_BYTES: Final = 104_857_600
"""The largest number of bytes of an answer: Kafka's default limit of a request
(socket.request.max.bytes)."""
RETRY_S: Final = 0.2

METADATA, FIND_COORDINATOR, API_VERSIONS = 3, 10, 18

AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Temporary errors, after which the same request is sent again."""


class ServerError(Exception):
    """The server does not answer, or refuses; the message is one line."""


class Broker(NamedTuple):
    """The node id of a broker, and its advertised address."""

    node_id: int
    address: HostPort


class BrokerConnection:
    """A connection to one broker, which the constructor opens. The constructor and ``ask`` raise
    ServerError if the broker does not answer.
    """

    def __init__(self, address: HostPort, timeout_s: float) -> None:
        self.address = address
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
        except TimeoutError:
            raise ServerError(f"{address}: no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise ServerError(
                f"{address}: cannot connect ({error.strerror or error}); "
                "is the server running there? (--server HOST:PORT names another one)"
            ) from None
        try:
            self._versions = self._ask_versions()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def serves(self, api_key: int) -> bool:
        return api_key in self._versions

    def ask(self, api_key: int, versions: range, **values: Any) -> Any:
        """Send a request in the highest of ``versions`` that the broker has. Return the answer."""
        low, high = self._versions.get(api_key, (0, -1))
        both = range(max(low, versions.start), min(high + 1, versions.stop))
        if not both:
            raise ServerError(f"{self.address}: has no known version of API {api_key}")
        return self._ask(api_key, both[-1], **values)

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        # every broker answers version 0
        answer = self._ask(API_VERSIONS, 0, client_software_version=VERSION)
        if answer.error_code:
            raise ServerError(f"{self.address}: ApiVersions: {error_name(answer.error_code)}")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _ask(self, api_key: int, version: int, **values: Any) -> Any:
        self._correlation_id += 1
        frame = write_request(api_key, version, self._correlation_id, CLI_CLIENT_ID, **values)
        try:
            self._socket.sendall(frame)
            size = int.from_bytes(self._exactly(4), "big", signed=True)
            if not 0 <= size <= MAX_ANSWER_BYTES:
                raise ServerError(f"{self.address}: the server there does not speak Kafka")
            body = self._exactly(size)
            return read_response(api_key, version, self._correlation_id, body)
        except TimeoutError:
            raise ServerError(
                f"{self.address}: no answer within {self._socket.gettimeout():g} s"
            ) from None
        except OSError as error:
            raise ServerError(f"{self.address}: {error.strerror or error}") from None
        except ProtocolError as error:
            raise ServerError(f"{self.address}: the answer cannot be read: {error}") from None

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(min(count - len(data), 1_048_576))
            if not chunk:
                raise ServerError(
                    f"{self.address}: closed the connection; does a plain-text Kafka port "
                    "listen there?"
                )
            data += chunk
        return bytes(data)


class BrokerCluster:
    """The brokers of one cluster, found through one address. Connections are kept until the end of
    the ``with`` block.
    """

    def __init__(self, bootstrap: HostPort, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._give_up_s = time.monotonic() + timeout_s
        self._connections = {bootstrap: BrokerConnection(bootstrap, timeout_s)}
        self.first = self._connections[bootstrap]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def to(self, address: HostPort) -> BrokerConnection:
        if address not in self._connections:
            self._connections[address] = BrokerConnection(address, self._timeout_s)
        return self._connections[address]

    def brokers(self) -> list[Broker]:
        # version 0 would return all topics for an empty list
        answer = self._metadata([])
        return [Broker(b.node_id, HostPort(b.host, b.port)) for b in answer.brokers]

    def leaders(self, topics: list[str]) -> dict[tuple[str, int], HostPort]:
        """Return the leader of each partition; partitions without a leader are left out."""
        answer = self._metadata(topics)
        known = {b.node_id: HostPort(b.host, b.port) for b in answer.brokers}
        return {
            (topic.name, partition.partition_index): known[partition.leader_id]
            for topic in answer.topics
            for partition in topic.partitions
            if partition.leader_id in known
        }

    def topics(self) -> set[str]:
        return {topic.name for topic in self._metadata(None).topics if topic.name}

    def coordinator(self, group_id: str) -> Broker:
        """Return the coordinator of a group. While there is none, retry. Raises ServerError when
        the timeout has passed.
        """
        while True:
            answer = self.first.ask(
                FIND_COORDINATOR,
                range(7),
                key=group_id,
                key_type=0,
                coordinator_keys=[group_id],
            )
            found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
            if not found.error_code:
                return Broker(found.node_id, HostPort(found.host, found.port))
            self.wait_or_raise(found.error_code, f"group {group_id!r}")

    def wait_or_raise(self, code: int, what: str) -> None:
        """Wait before the caller retries. Raises ServerError instead if the error ``code`` is not
        temporary, or the timeout of the cluster has passed.
        """
        if code not in AGAIN or time.monotonic() + RETRY_S > self._give_up_s:
            raise ServerError(f"{self.first.address}: {what}: {error_name(code)}")
        time.sleep(RETRY_S)

    def _metadata(self, topics: list[str] | None) -> Any:
        return self.first.ask(
            METADATA,
            range(1, 13),
            topics=None if topics is None else [Row(name=name, topic_id="") for name in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
