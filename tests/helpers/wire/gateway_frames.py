"""Frames of requests and replies around random content, and a view of a cluster to rewrite them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from groupkeeper.coordinator.gateway.rewriting import View
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.protocol.codec import request_class, response_class, uuid_to_topic_id
from groupkeeper.protocol.frames import read_request_header
from groupkeeper.protocol.reader import read_entity

HIDDEN_ID = UUID(int=77)
HERE = Endpoint("gateway.example", 9092)
VIEW = View(
    node_id=1_000_000,
    here=HERE,
    brokers={node: Endpoint("gateway.example", 9100 + node) for node in (0, 1, 7)},
    hidden_topics=frozenset({"orders", "é"}),
    hidden_topic_ids=frozenset({uuid_to_topic_id(HIDDEN_ID)}),
)
"""A view with ids and names that are frequent in random content (``wire_entities``)."""


CORRELATION_ID = 77


def framed(api: tuple[int, int], body: bytes) -> bytes:
    """Return the frame of a reply with the correlation id 77."""
    tags = b"\0" if response_class(*api).__header_schema__.__flexible__ else b""
    content = CORRELATION_ID.to_bytes(4, "big") + tags + body
    return len(content).to_bytes(4, "big") + content


def unframed(api: tuple[int, int], frame: bytes) -> bytes:
    """Return the body of a reply. Its length and correlation id are checked."""
    body = frame[9 if response_class(*api).__header_schema__.__flexible__ else 8 :]
    assert framed(api, body) == frame
    return body


def decoded(api: tuple[int, int], body: bytes) -> Any:
    return read_entity(response_class(*api), body, 0, 1000)


def framed_request(api: tuple[int, int], body: bytes) -> bytes:
    """Return the frame of a request of the client "app"."""
    key, version = api
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + CORRELATION_ID.to_bytes(4, "big")
    tags = b"\0" if request_class(*api).__header_schema__.__flexible__ else b""
    content = header + b"\0\3app" + tags + body
    return len(content).to_bytes(4, "big") + content


def decoded_request(api: tuple[int, int], frame: bytes) -> Any:
    """Return the entity in a frame. Its header is checked."""
    at = len(framed_request(api, b""))
    assert framed_request(api, frame[at:]) == frame
    assert read_request_header(frame).correlation_id == CORRELATION_ID
    return read_entity(request_class(*api), frame, at, 1000)
