"""The brokers of a cluster: find the leader of a partition, and connect to it.

A reader sends requests in fixed versions, the oldest that Kafka 4 serves. Every supported version
of aiokafka knows them, and reading needs nothing newer.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, for_code
from aiokafka.protocol.metadata import MetadataRequest_v4

from groupkeeper.clients.readers.errors import CannotRead, NoSuchPartition, NoSuchTopic

Connection: TypeAlias = Any
"""A connection of aiokafka. aiokafka has no type annotations."""

REQUEST_TIMEOUT_MS = 30_000
"""How long to wait for the answer to a request. Kafka's consumers wait for the same time."""
METADATA_TIMEOUT_S = 10.0
"""How long to wait for a connection and the first answer on it, before the next broker is asked. A
broker that hangs still accepts connections. Kafka's consumers wait for the same time.
"""
UNKNOWN_TOPIC = 3
_DEFAULT_PORT = 9092


@dataclass(frozen=True)
class KafkaSecurity:
    """The settings for brokers that require authentication or TLS."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    username: str | None = None
    password: str | None = None

    def __post_init__(self) -> None:
        if self.protocol.endswith("SSL") and self.ssl_context is None:
            raise ValueError(f"{self.protocol} needs an ssl_context")
        if self.protocol.startswith("SASL") and None in (self.username, self.password):
            raise ValueError(f"{self.protocol} needs a username and a password")


class FixedVersion:
    """A request of one version, for aiokafka's connections. From aiokafka 0.13 on, a connection
    calls ``prepare``. In older versions it sends this object itself, which therefore has all
    attributes of the request.
    """

    def __init__(self, request: Any) -> None:
        self._request = request

    def prepare(self, _versions: object) -> Any:
        """Return the request. Its version does not depend on the versions of the broker."""
        return self._request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


class BrokerAddress(NamedTuple):
    """The host and port of a broker. An IPv6 address has no brackets here."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> BrokerAddress:
        """Parse ``host``, ``host:port`` or ``[v6]:port``; the default port is 9092. Raises
        ValueError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or text.endswith("]"):
            host, port = text.strip(), str(_DEFAULT_PORT)
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{text!r} is no address of a broker: must be host:port")
        return cls(host.strip("[]"), int(port))


class Brokers:
    """Finds the leader of a partition, and connects to it."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        security: KafkaSecurity | None,
        client_id: str,
        max_wait_ms: int = 0,
    ) -> None:
        texts = addresses.split(",") if isinstance(addresses, str) else addresses
        self._bootstrap = [BrokerAddress.parse(text) for text in texts]
        if not self._bootstrap:
            raise ValueError("no broker is named")
        self._security = security or KafkaSecurity()
        self._client_id = client_id
        # a leader may wait up to max_wait_ms for messages before it answers
        self._request_timeout_ms = REQUEST_TIMEOUT_MS + max_wait_ms
        self._learnt: list[BrokerAddress] = []

    async def connect_to_leader(self, topic: str, partition: int) -> Connection:
        """Ask any broker for the partition's leader, and return a connection to the leader.

        Raises NoSuchTopic or NoSuchPartition if that broker does not know the topic or partition.
        Raises KafkaConnectionError if no broker can be reached, or the partition has no leader.
        Raises CannotRead if a certificate cannot be verified.
        """
        asked, connection, metadata = await self._ask_any(topic)
        try:
            leader = self._leader(metadata, topic, partition)
        except BaseException:
            connection.close()
            raise
        if leader == asked:
            return connection
        connection.close()
        return await self._connect(leader)

    def _leader(self, metadata: Any, topic: str, partition: int) -> BrokerAddress:
        nodes = {node: BrokerAddress(host, port) for node, host, port, _rack in metadata.brokers}
        self._learnt = list(nodes.values())
        (found,) = [each for each in metadata.topics if each[1] == topic]
        if found[0] == UNKNOWN_TOPIC:
            raise NoSuchTopic(topic)
        _raise_for(found[0])
        partitions = {each[1]: each for each in found[3]}
        if partition not in partitions:
            raise NoSuchPartition(topic, partition, len(partitions))
        leader = partitions[partition][2]
        if leader not in nodes:
            raise KafkaConnectionError(f"{topic!r}/{partition} has no leader now")
        return nodes[leader]

    async def _ask_any(self, topic: str) -> tuple[BrokerAddress, Connection, Any]:
        """Ask the known brokers for the topic until one answers. Return its address, a connection
        to it, and its answer.

        The order is random. Otherwise all readers would connect to the first broker.
        """
        known = list(dict.fromkeys([*self._bootstrap, *self._learnt]))
        problems = []
        for address in random.sample(known, len(known)):
            try:
                async with asyncio.timeout(METADATA_TIMEOUT_S):
                    connection = await self._connect(address)
                    return address, connection, await _ask(connection, topic)
            except (OSError, KafkaConnectionError) as error:
                problems.append(f"{address.host}:{address.port}: {error or type(error).__name__}")
        raise KafkaConnectionError("no broker can be reached: " + "; ".join(problems))

    async def _connect(self, address: BrokerAddress) -> Connection:
        security = self._security
        try:
            return await create_conn(
                address.host,
                address.port,
                client_id=self._client_id,
                request_timeout_ms=self._request_timeout_ms,
                security_protocol=security.protocol,
                ssl_context=security.ssl_context,
                sasl_mechanism=security.sasl_mechanism,
                sasl_plain_username=security.username,
                sasl_plain_password=security.password,
            )
        except ssl.SSLCertVerificationError as error:
            raise CannotRead(f"{address.host}:{address.port}: {error}") from error


async def _ask(connection: Connection, topic: str) -> Any:
    try:
        request = MetadataRequest_v4([topic], False)  # False: do not create the topic
        return await connection.send(FixedVersion(request))
    except BaseException:
        connection.close()
        raise


def _raise_for(code: int) -> None:
    if code:
        error: KafkaError = for_code(code)()
        raise error
