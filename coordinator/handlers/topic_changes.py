"""The common part of CreateTopics, CreatePartitions and DeleteTopics.

Each topic of a request is checked on its own. Errors that the request alone shows are answered
here. The cluster shard, which holds the topics, answers for all other topics. Answers have the
order of the request, and a name that occurs twice is answered once. If a request is refused as a
whole, each of its entries is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import (
    ChangeTopics,
    ChangeTopicsResult,
    TopicChange,
)

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


MAX_NEW_PARTITIONS: Final = 10_000
"""The largest number of new partitions in one request. Kafka has the same limit
(MAX_PARTITIONS_PER_BATCH), and applies it also to the number of records that it writes for the
request."""


def refusal(name: str | None, error: ErrorCode, message: str, topic_id: str = "") -> TopicChange:
    """Return the answer for a topic that is refused here, without asking the cluster shard."""
    return TopicChange(name, topic_id, -1, error, message)


def submit(
    exchange: Exchange,
    services: Services,
    change: ChangeTopics,
    refusals: Sequence[TopicChange | None],
    render: Callable[[list[TopicChange], Exchange], bytes],
) -> None:
    """Submit the change to the cluster shard, which holds the topics. ``refusals`` has an entry for
    each topic: the refusal, or None if the cluster shard decides.
    """

    def render_all(result: ChangeTopicsResult, exchange: Exchange) -> bytes:
        return render(_merge(result, change, refusals), exchange)

    exchange.render = render_all
    if all(refusals):
        exchange.resolve(ChangeTopicsResult(ErrorCode.NONE))
    else:
        services.coordinator.submit(change, exchange)


def refuse_all(
    exchange: Exchange,
    named: Iterable[tuple[str | None, str]],
    error: ErrorCode,
    message: str | None,
    render: Callable[[list[TopicChange], Exchange], bytes],
) -> None:
    """Answer every entry of the request with the same error. ``named`` has the (name, topic id) of
    each entry.
    """
    changes = [TopicChange(name, topic_id, -1, error, message) for name, topic_id in named]
    exchange.send(render(changes, exchange))


def _merge(
    result: ChangeTopicsResult, change: ChangeTopics, refusals: Sequence[TopicChange | None]
) -> list[TopicChange]:
    if result.error is not ErrorCode.NONE:
        decided = iter(
            [
                refusal(name, result.error, result.error.name, topic_id)
                for name, topic_id in _named(change)
            ]
        )
    else:
        decided = iter((*result.created, *result.grown, *result.deleted))
    return [next(decided) if known is None else known for known in refusals]


def _named(change: ChangeTopics) -> list[tuple[str | None, str]]:
    return [
        *[(topic.name, "") for topic in change.create],
        *[(name, "") for name, _ in change.grow],
        *change.delete,
    ]


def unique(changes: list[TopicChange]) -> list[TopicChange]:
    """Return the first answer for each name."""
    return list({change.name: change for change in reversed(changes)}.values())[::-1]


def repeated(names: Sequence[Any]) -> frozenset[Any]:
    """Return the names that occur more than once."""
    seen: set[Any] = set()
    twice: set[Any] = set()
    for name in names:
        (twice if name in seen else seen).add(name)
    return frozenset(twice)


def first_error(changes: list[TopicChange]) -> ErrorCode:
    """Return the first error of the answers; NONE if there is none. The metrics count one error for
    each request.
    """
    return next((change.error for change in changes if change.error), ErrorCode.NONE)
