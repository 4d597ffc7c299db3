"""The last requests of a connection. The next request is nearly always like one of them.

So a handler compares the bytes of a request with the bytes of the last request of the same API and
version. Equal bytes are not parsed again. In a commit, the offsets and epochs may differ
(``CommitShape`` in ``protocol.packed.offset_commit``).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Sender: TypeAlias = tuple[str, int, str, str | None]
"""(group id, generation or member epoch, member id, instance id or None)."""

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
    """The last requests of a connection. The next requests often repeat them."""

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
        """The sender of a recent Heartbeat or OffsetCommit in a flexible version."""
        self.raw = b"\1\0\0\0\0\1\0"
        """The bytes of ``fields`` in the request."""
        self.heartbeat: Repeated | None = None
        self.consumer_heartbeat: Repeated | None = None
        """The last ConsumerGroupHeartbeat that stated nothing new and that the handler submitted.
        """
        self.answer: Any = None
        """The immutable result of a ConsumerGroupHeartbeat, from which ``answer_body`` was encoded.
        """
        self.answer_body = b""
        """The bytes after the throttle time in the last reply that had no assignment and no error.
        """
        self.fetch: Repeated | None = None
        """The last OffsetFetch of one group that named its topics instead of asking for all."""
        self.commit: Any = None
        """The ``CommitShape`` of the last OffsetCommit (``packed.offset_commit``): all except
        its offsets and epochs. None if that commit has no such shape."""
