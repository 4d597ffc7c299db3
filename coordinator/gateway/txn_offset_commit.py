"""TxnOffsetCommit (28): offsets of a group in a transaction (docs/spec/offsets.md#transactions).

| version | change |
| --- | --- |
| 2 | leader epoch |
| 3 | flexible; generation, member and instance id |
| 4 | TRANSACTION_ABORTABLE |
| 5 | adds the partition to the transaction (transaction version 2) |

Only a gateway serves it, because only the upstream cluster knows how a transaction ends. We read
this in the journal, a topic of ours in that cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.transactions import (
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from groupkeeper.coordinator.gateway.journal.journal import Journal
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.routes import Handle
    from groupkeeper.coordinator.handlers.services import Services

_NO_GENERATION: Final = -1
_NO_EPOCH: Final = -1


def handler(journal: Callable[[], Journal | None]) -> Handle:
    """Return the handler of a gateway. ``journal`` returns its journal, or None if it has none."""

    def handle(exchange: Exchange, services: Services) -> None:
        wire = exchange.read(services)
        exchange.asked = wire.topics
        exchange.render = render
        topics = [
            (
                topic.name,
                "",
                [
                    (
                        row.partition_index,
                        row.committed_offset,
                        getattr(row, "committed_leader_epoch", _NO_EPOCH),
                        row.committed_metadata,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in wire.topics
        ]
        request = TxnOffsetCommit(
            wire.group_id,
            getattr(wire, "generation_id", _NO_GENERATION),
            getattr(wire, "member_id", ""),
            getattr(wire, "group_instance_id", None),
            topics,
            wire.producer_id,
            wire.producer_epoch,
            services.mint().hex,
            exchange.client,
        )
        writer = journal()
        if services.denied or writer is None:
            error = services.denied or ErrorCode.COORDINATOR_NOT_AVAILABLE
            exchange.resolve(TxnOffsetCommitResult(error))
            return
        writer.submit(request, wire.transactional_id, exchange.version, exchange.resolve)

    return handle


def render(result: TxnOffsetCommitResult, exchange: Exchange) -> bytes:
    """Return the reply frame. The API has no error for a whole request, so each partition gets the
    error of the request.
    """
    topics = result.topics
    if topics is None:
        topics = [
            (topic.name, "", [(row.partition_index, result.error) for row in topic.partitions])
            for topic in exchange.asked
        ]
    rows = [
        Row(
            name=name,
            partitions=[
                Row(partition_index=number, error_code=_in_version(code, exchange.version))
                for number, code in partitions
            ],
        )
        for name, _, partitions in topics
    ]
    exchange.error = next((p.error_code for row in rows for p in row.partitions if p.error_code), 0)
    return exchange.write(topics=rows)


def _in_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error that clients of this version know.

    See KafkaApis.handleTxnOffsetCommitRequest.
    """
    if version < 2 and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
