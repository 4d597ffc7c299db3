"""OffsetCommit (8): store offsets of a group (docs/spec/offsets.md#commit).

| version | change |
| --- | --- |
| 0 | (unadvertised) no generation and no member; we use generation -1 |
| 1 | (unadvertised) generation and member; a timestamp for each partition, which is ignored |
| 2-4 | retention time |
| 3 | throttle time |
| 6 | leader epoch |
| 7 | group instance id |
| 8 | flexible |
| 9 | a generation at an absent group is GROUP_ID_NOT_FOUND; before, ILLEGAL_GENERATION |
| 10 | topic ids instead of names |

The reply has no field for an error of the whole request: such an error is copied to every partition
(docs/spec/admission.md#placement).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetCommitResult
from groupkeeper.coordinator.handlers.exchange import NO_THROTTLE_MS
from groupkeeper.protocol.packed.offset_commit import (
    CommitShape,
    CommitTopic,
    pack_offset_commit,
    pack_offset_commit_results,
    read_offset_commit,
)

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

# mypyc would look up a member of an enum at each use.
_GROUP_ID_NOT_FOUND: Final = ErrorCode.GROUP_ID_NOT_FOUND
_ILLEGAL_GENERATION: Final = ErrorCode.ILLEGAL_GENERATION


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the commit. The answer is sent when the offsets are durable. Later requests of the
    connection may begin before that.
    """
    version = exchange.version
    group_id, generation_id, member_id, instance_id, retention_ms, topics = read_offset_commit(
        version,
        exchange.frame,
        exchange.body_at,
        services.max_request_elements,
        exchange.last,
    )
    exchange.frame = b""
    exchange.blocks = False
    shape = exchange.last.commit
    # A ``CommitShape`` makes the reply without the partitions, so they need not stay in memory.
    exchange.asked = topics if shape is None else shape
    exchange.render = render
    services.coordinator.submit(
        OffsetCommit(
            group_id,
            generation_id,
            member_id,
            instance_id,
            topics,
            version >= 10,
            retention_ms,
            _GROUP_ID_NOT_FOUND if version >= 9 else _ILLEGAL_GENERATION,
            exchange.client,
        ),
        exchange,
    )


def render(result: OffsetCommitResult, exchange: Exchange) -> bytes:
    """Return the reply frame in the version of the request, and set ``exchange.error``."""
    version, throttle_time_ms = exchange.version, NO_THROTTLE_MS
    topics = result.topics
    if topics is None:
        exchange.error = error = result.error
        asked: list[CommitTopic] | CommitShape = exchange.asked
        if isinstance(asked, CommitShape):
            return asked.pack(exchange.correlation_id, throttle_time_ms, error)
        return pack_offset_commit(version, exchange.correlation_id, throttle_time_ms, asked, error)
    exchange.error = next((e for _, _, rows in topics for _, e in rows if e), ErrorCode.NONE)
    return pack_offset_commit_results(version, exchange.correlation_id, throttle_time_ms, topics)
