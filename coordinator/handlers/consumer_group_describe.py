"""ConsumerGroupDescribe (69): consumer groups and their members
(docs/spec/consumer-groups.md#describe).

| version | change |
| --- | --- |
| 1 | the protocol that each member uses |

A group that is named twice is answered twice. As in Kafka, the message of a group without an error
is null. In an answer to our own command line, the message says what the group waits for, as in
DescribeGroups.

The members of a large group are encoded in slices, one in each iteration of the event loop
(``slices``), because each member may subscribe to 20,000 names.
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
from groupkeeper.coordinator.handlers.gather import Enclosed, Gather
from groupkeeper.coordinator.handlers.slices import SLICE_ELEMENTS
from groupkeeper.coordinator.handlers.waiting_text import shows_waiting, waiting_text
from groupkeeper.protocol.writer import Row, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services
    from groupkeeper.coordinator.handlers.slices import Slices

GROUPS_AT_ONCE: Final = 8
"""The number of groups that are encoded at the same time. Each encoded group may be as long as the
longest reply."""
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
_NOBODY: Final = Written(0, [])


def handle(exchange: Exchange, services: Services) -> None:
    """Ask the coordinator for each group. The answers have the order of the request."""
    wire = exchange.read(services)
    with_operations = wire.include_authorized_operations

    def render_part(result: ConsumerGroupDescribeResult, _index: int) -> bytes | Enclosed:
        exchange.error = exchange.error or result.error

        def write(members: bytearray | bytes) -> bytes:
            written = Written(len(result.members), [members])
            row = _row(result, written, with_operations=with_operations)
            return exchange.write_part("groups", [row])

        if sum([_elements(member) for member in result.members]) > SLICE_ELEMENTS:
            return Enclosed(_slices(exchange, result.members), write)
        return write(exchange.write_part("groups.members", map(_member, result.members)))

    def render_all(parts: list[bytes]) -> bytes:
        return exchange.write(groups=Written(len(parts), parts))

    with_waiting = shows_waiting(exchange, wire.group_ids)
    requests = [ConsumerGroupDescribe(group_id, with_waiting) for group_id in wire.group_ids]
    if services.serves_consumer_groups:
        Gather(exchange, services, requests, render_part, render_all, GROUPS_AT_ONCE).begin()
        return
    exchange.error = ErrorCode.UNSUPPORTED_VERSION
    refusals = [_row(each.refused(exchange.error), _NOBODY) for each in requests]
    exchange.send(exchange.write(groups=refusals))


def _elements(member: DescribedConsumerMember) -> int:
    """Return about how many elements a member adds to the reply."""
    held = (*member.assignment, *member.target_assignment)
    partitions = sum([1 + len(numbers) for _, _, numbers in held])
    return 1 + len(member.subscribed_topic_names) + partitions


def _slices(exchange: Exchange, members: Sequence[DescribedConsumerMember]) -> Slices:
    """Encode the members. Yield each slice except the last, which is returned."""
    rows: list[Row] = []
    elements = 0
    for member in members:
        if elements > SLICE_ELEMENTS:
            yield exchange.write_part("groups.members", rows)
            rows.clear()
            elements = 0
        rows.append(_member(member))
        elements += _elements(member)
    return exchange.write_part("groups.members", rows)


def _row(
    result: ConsumerGroupDescribeResult, members: Written, *, with_operations: bool = False
) -> Row:
    filled = with_operations and result.error is ErrorCode.NONE
    return Row(
        error_code=result.error,
        error_message=result.message if result.waiting is None else waiting_text(result.waiting),
        group_id=result.group_id,
        group_state=result.state,
        group_epoch=result.group_epoch,
        assignment_epoch=result.assignment_epoch,
        assignor_name=result.assignor_name,
        members=members,
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
