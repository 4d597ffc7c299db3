"""ConsumerGroupDescribe (69): consumer groups and their members
(docs/spec/consumer-groups.md#describe).

| version | change |
| --- | --- |
| 1 | the protocol that each member uses |

A group that is named twice is answered twice. As in Kafka, the message of a group without an error
is null. Our own command line gets in the message what the group waits for, as in DescribeGroups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    DescribedConsumerMember,
)
from groupkeeper.coordinator.handlers.brokers import GROUP_OPERATIONS, NO_OPERATIONS
from groupkeeper.coordinator.handlers.gather import Gather
from groupkeeper.coordinator.handlers.waiting_text import shows_waiting, waiting_text
from groupkeeper.protocol.writer import Row, Written

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def handle(exchange: Exchange, services: Services) -> None:
    """Ask the coordinator for each group. The answers have the order of the request."""
    wire = exchange.read(services)
    with_operations = wire.include_authorized_operations

    def render_part(result: ConsumerGroupDescribeResult, _index: int) -> bytes:
        exchange.error = exchange.error or result.error
        return exchange.write_part("groups", [_row(result, with_operations=with_operations)])

    def render_all(parts: list[bytes]) -> bytes:
        return exchange.write(groups=Written(len(parts), parts))

    with_waiting = shows_waiting(exchange, wire.group_ids)
    requests = [ConsumerGroupDescribe(group_id, with_waiting) for group_id in wire.group_ids]
    if services.serves_consumer_groups:
        Gather(exchange, services, requests, render_part, render_all).begin()
        return
    refusals = [request.refused(ErrorCode.UNSUPPORTED_VERSION) for request in requests]
    exchange.send(render_all([render_part(refusal, 0) for refusal in refusals]))


def _row(result: ConsumerGroupDescribeResult, *, with_operations: bool) -> Row:
    filled = with_operations and result.error is ErrorCode.NONE
    return Row(
        error_code=result.error,
        error_message=result.message if result.waiting is None else waiting_text(result.waiting),
        group_id=result.group_id,
        group_state=result.state,
        group_epoch=result.group_epoch,
        assignment_epoch=result.assignment_epoch,
        assignor_name=result.assignor_name,
        members=[_member(member) for member in result.members],
        authorized_operations=GROUP_OPERATIONS if filled else NO_OPERATIONS,
    )


def _member(member: DescribedConsumerMember) -> Row:
    return Row(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(topics: tuple[tuple[str, str, tuple[int, ...]], ...]) -> Row:
    return Row(
        topic_partitions=[
            Row(topic_id=topic_id, topic_name=name, partitions=partitions)
            for topic_id, name, partitions in topics
        ]
    )
