"""OffsetFetch (9): read committed offsets (docs/spec/offsets.md#fetch).

| version | change |
| --- | --- |
| 0 | (unadvertised) as version 1; old versions of Kafka read from ZooKeeper |
| 2 | null topics: everything that is stored; one error for the whole reply |
| 3 | throttle time |
| 5 | leader epoch |
| 6 | flexible |
| 7 | require stable |
| 8 | many groups, each with its own error, answered in request order |
| 9 | member id and epoch |
| 10 | topic ids instead of names |

The error of a request is set on every partition (versions 0-1), at the top (2-7) or on the group (8
and later; docs/spec/admission.md#placement).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import FetchTopic, OffsetFetch, OffsetFetchResult
from groupkeeper.coordinator.core.stored_topics import StoredTopics
from groupkeeper.coordinator.handlers.exchange import NO_THROTTLE_MS
from groupkeeper.coordinator.handlers.gather import WINDOW_REQUESTS, Gather
from groupkeeper.coordinator.handlers.slices import SLICE_BYTES, SLICE_ELEMENTS, SlicedReply, Slices
from groupkeeper.protocol.last_requests import MAX_REPEATED_BYTES, Repeated
from groupkeeper.protocol.packed.offset_fetch import (
    OffsetFetchGroup,
    fetched_group_ends,
    fetched_pieces,
    pack_fetched_body,
    pack_fetched_group,
    pack_fetched_groups,
    pack_large_groups,
    pack_offset_fetch,
    read_offset_fetch,
)

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

MANY_GROUPS = 8
TOPIC_IDS = 10


def handle(exchange: Exchange, services: Services) -> None:
    """Submit one request for each group that the client names."""
    version = exchange.version
    body = exchange.frame[exchange.body_at : exchange.body_at + MAX_REPEATED_BYTES + 1]
    last = exchange.last.fetch
    if last is not None and last.body == body and last.version == version:
        request: OffsetFetch = last.request
    else:
        groups, require_stable = read_offset_fetch(
            version, exchange.frame, exchange.body_at, services.max_request_elements
        )
        if len(groups) != 1:
            _submit_many(exchange, services, groups, require_stable)
            return
        group_id, member_id, member_epoch, topics = groups[0]
        by_id = version >= TOPIC_IDS
        request = OffsetFetch(group_id, topics, by_id, require_stable, member_id, member_epoch)
        if topics is not None and len(body) <= MAX_REPEATED_BYTES:
            exchange.last.fetch = Repeated(version, body, request)
    exchange.frame = b""
    exchange.asked = request
    exchange.group_id = request.group_id
    if request.topics is None:
        # All offsets of a group may be far larger than the request: one such answer at a time.
        exchange.blocks = True
        exchange.render = partial(render_stored, services=services)
    else:
        exchange.blocks = False
        exchange.render = render
    services.coordinator.submit(request, exchange)


def _submit_many(
    exchange: Exchange, services: Services, groups: list[OffsetFetchGroup], require_stable: bool
) -> None:
    version = exchange.version
    by_id = version >= TOPIC_IDS
    exchange.frame = b""
    requests = [
        OffsetFetch(group_id, topics, by_id, require_stable, member_id, member_epoch)
        for group_id, member_id, member_epoch, topics in groups
    ]

    def render_part(result: OffsetFetchResult, index: int) -> bytes | Slices:
        exchange.error = exchange.error or _first_error(result, version)
        if isinstance(result.topics, StoredTopics):
            exchange.channel.grew(exchange, result.topics.held_bytes())
            return _group_slices(requests[index].group_id, result.topics, version)
        topics: Any = result.topics
        group_id = requests[index].group_id
        return b"".join(pack_fetched_group(version, group_id, topics, result.error))

    def render_all(parts: list[bytes | bytearray]) -> bytes:
        head = exchange.correlation_id, NO_THROTTLE_MS
        return pack_large_groups(*head, len(parts), parts)

    # An answer with all offsets of a group may be large: one at a time.
    all_of_one = any(request.topics is None for request in requests)
    at_once = 1 if all_of_one else WINDOW_REQUESTS
    Gather(exchange, services, requests, render_part, render_all, at_once).begin()


def render_stored(
    result: OffsetFetchResult, exchange: Exchange, services: Services
) -> bytes | None:
    """Render all offsets of one group (``StoredTopics``) in slices, over several iterations of the
    event loop if there are many. Then send the reply, and return None. Any other result is rendered
    and returned at once.
    """
    topics = result.topics
    if not isinstance(topics, StoredTopics):
        return render(result, exchange)
    exchange.channel.grew(exchange, topics.held_bytes())
    slices = _slices(topics, exchange.version)
    count = len(topics)

    def send(body: bytearray) -> None:
        head = exchange.correlation_id, NO_THROTTLE_MS
        if exchange.version >= MANY_GROUPS:
            before, after = fetched_group_ends(exchange.asked.group_id, count)
            exchange.send(pack_large_groups(*head, 1, [before, body, after]))
        else:
            exchange.send(pack_fetched_body(exchange.version, *head, count, body))

    SlicedReply(exchange, services, slices, send).advance()
    return None


def _group_slices(group_id: str, topics: StoredTopics, version: int) -> Slices:
    """Encode the offsets of a group in slices. Together they are the bytes that
    ``pack_fetched_group`` returns.
    """
    before, after = fetched_group_ends(group_id, len(topics))
    yield before
    last = yield from _slices(topics, version)
    return last + after


def _slices(topics: StoredTopics, version: int) -> Slices:
    pieces: list[bytes] = []
    size = 0
    for piece in fetched_pieces(version, topics):
        pieces.append(piece)
        size += len(piece)
        if size >= SLICE_BYTES or len(pieces) >= SLICE_ELEMENTS:
            yield _joined(pieces)
            size = 0
    return _joined(pieces)


def _joined(pieces: list[bytes]) -> bytes:
    """Join the pieces, and clear their list. Otherwise memory would hold both until the next
    iteration of the event loop.
    """
    joined = b"".join(pieces)
    pieces.clear()
    return joined


def render(result: OffsetFetchResult, exchange: Exchange) -> bytes:
    """Return the answer for one group, in the version of the request."""
    version = exchange.version
    request: OffsetFetch = exchange.asked
    exchange.error = result.error if version < TOPIC_IDS else _first_error(result, version)
    # Any, because the functions that pack expect lists of int, not of ErrorCode.
    topics: Any = result.topics
    correlation_id, throttle_time_ms = exchange.correlation_id, NO_THROTTLE_MS
    if version >= MANY_GROUPS:
        pieces = pack_fetched_group(version, request.group_id, topics, result.error)
        return pack_fetched_groups(correlation_id, throttle_time_ms, 1, pieces)
    if version < 2 and result.error is not ErrorCode.NONE:
        topics = _on_every_partition(request.topics or [], result.error)
    return pack_offset_fetch(version, correlation_id, throttle_time_ms, topics, result.error)


def _first_error(result: OffsetFetchResult, version: int) -> ErrorCode:
    """Return the error that the metrics count. A partition has an error only if its topic id is
    unknown, and then all partitions of this topic have it.
    """
    if result.error or version < TOPIC_IDS or isinstance(result.topics, StoredTopics):
        return result.error
    topics: Any = result.topics
    return next((rows[0][4] for _, _, rows in topics if rows and rows[0][4]), result.error)


def _on_every_partition(
    topics: list[FetchTopic], error: ErrorCode
) -> list[tuple[str, str, list[tuple[int, int, int, str, ErrorCode]]]]:
    return [
        (name, topic_id, [(partition, -1, -1, "", error) for partition in partitions])
        for name, topic_id, partitions in topics
    ]
