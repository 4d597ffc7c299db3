"""The last requests of a connection. The next request is nearly always like one of them.

So its bytes are compared with those of the last request of the same version. Equal bytes are not
parsed again. In a commit, only the offsets and epochs may differ (``CommitShape``).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Sender: TypeAlias = tuple[str, int, str, str | None]
"""(group id, generation, member id, instance id)."""

MAX_REPEATED_BYTES: Final = 512
"""Longer bytes are not remembered, to bound the memory of a connection."""


class Repeated:
    """A request that a handler has decoded, and the bytes of its body."""

    __slots__ = ("body", "request", "version")

    def __init__(self, version: int, body: bytes, request: Any) -> None:
        self.version = version
        self.body = body
        self.request = request


class LastRequests:
    """The last requests of a connection, which the next ones often repeat."""

    __slots__ = (
        "answer",
        "answer_body",
        "commit",
        "consumer_heartbeat",
        "fetch",
        "fields",
        "heartbeat",
        "raw",
    )

    def __init__(self) -> None:
        self.fields: Sender = ("", 0, "", None)
        """The sender of the last Heartbeat or OffsetCommit."""
        self.raw = b"\1\0\0\0\0\1\0"
        """The bytes of ``fields`` in a flexible version."""
        self.heartbeat: Repeated | None = None
        self.consumer_heartbeat: Repeated | None = None
        """The last ConsumerGroupHeartbeat that stated nothing new and was not refused."""
        self.answer: Any = None
        """The immutable result from which ``answer_body`` was encoded."""
        self.answer_body = b""
        """The reply to a ConsumerGroupHeartbeat without an assignment, after its throttle time."""
        self.fetch: Repeated | None = None
        """The last OffsetFetch that named the topics of one group."""
        self.commit: Any = None
        """The ``CommitShape`` of the last OffsetCommit (``packed.offset_commit``): all except
        its offsets and epochs. None if that commit has no such shape."""
