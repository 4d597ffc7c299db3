"""The messages of a client's authentication, and what a broker answers to them."""

from __future__ import annotations

import struct

from groupkeeper.protocol.asking import write_request
from groupkeeper.protocol.codec import write_response
from groupkeeper.protocol.writer import Row
from tests.helpers.wire.relays import KAFKA_VERSIONS, reply

HANDSHAKE, AUTHENTICATE, METADATA = 17, 36, 3
PROOF_VERSION = 12
"""The version of the Metadata request that follows a login, to a broker with ``KAFKA_VERSIONS``."""

assert KAFKA_VERSIONS[METADATA][1] >= PROOF_VERSION


def handshake(correlation_id: int, mechanism: str = "PLAIN") -> bytes:
    """Return a SaslHandshake."""
    return write_request(HANDSHAKE, 1, correlation_id, "app", mechanism=mechanism)


def authenticate(correlation_id: int, token: bytes = b"\0alice\0secret", version: int = 1) -> bytes:
    """Return a SaslAuthenticate."""
    return write_request(AUTHENTICATE, version, correlation_id, "app", auth_bytes=token)


def handshake_reply(correlation_id: int, error: int = 0) -> bytes:
    """Return the answer to a SaslHandshake. The broker offers PLAIN."""
    return reply(correlation_id, struct.pack(">hih", error, 1, 5) + b"PLAIN")


def authenticate_reply(
    correlation_id: int, error: int = 0, lifetime_ms: int = 0, message: str = ""
) -> bytes:
    """Return the answer to a SaslAuthenticate of version 1."""
    text = message.encode()
    body = struct.pack(">hh", error, len(text)) + text + struct.pack(">iq", 0, lifetime_ms)
    return reply(correlation_id, body)


def proof_reply(correlation_id: int, *broker_ids: int) -> bytes:
    """Return the answer to the Metadata request that follows a login. Without brokers it does not
    prove the login.
    """
    brokers = [Row(node_id=each, host="b", port=9092, rack=None) for each in broker_ids]
    values = {"brokers": brokers, "cluster_id": "c", "controller_id": -1, "topics": []}
    return write_response(METADATA, PROOF_VERSION, correlation_id, 0, values)
