"""Groups of classic consumers, and consumer groups with members of both protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.helpers.core.consumer_members import ConsumerStub, describe_consumer
from tests.helpers.core.shard_driver import MemberStub, ShardDriver, a_member, completing

if TYPE_CHECKING:
    from tests.helpers.core.shard_driver import Call

NONE = ErrorCode.NONE


def subscribed(*owned: int, version: int = 1) -> tuple[JoinProtocol, ...]:
    """Return the protocols of a consumer that subscribes to ``orders`` and owns these
    partitions.
    """
    metadata = encode_subscription(
        Subscription(version, ["orders"], None, {"orders": [*owned]} if owned else {})
    )
    return (JoinProtocol("range", metadata),)


def assigned(*numbers: int, user_data: bytes | None = None) -> bytes:
    """Return an assignment of partitions of ``orders``, as a leader sends it."""
    return encode_assignment(ConsumerAssignment(1, {"orders": [*numbers]}, user_data))


def classic_group(driver: ShardDriver, *assignments: bytes, **fields: Any) -> list[MemberStub]:
    """Return a Stable group of classic consumers with these assignments."""
    members = [a_member(driver, protocols=subscribed(), **fields) for _ in assignments]
    ordered = completing(driver, *members)
    by_id = {m.member_id: data for m, data in zip(ordered, assignments, strict=True)}
    kind = fields.get("protocol_type", "consumer")
    for member in ordered:
        given = by_id if member.leads else None
        assert member.sync(given, protocol_type=kind).error is NONE
    return ordered


def rejoin(member: MemberStub, *owned: int) -> Call:
    """Join again with a subscription that owns these partitions of ``orders``."""
    call = member.join(protocols=subscribed(*owned))
    if call.reply is not None and call.error is NONE:
        member.joined(call)
    return call


def partitions_of(call: Call) -> set[int]:
    """Return the partitions of ``orders`` in the answer to a SyncGroup."""
    assert call.error is NONE, call.result
    return {*decode_assignment(call.result.assignment).partitions.get("orders", [])}


def mixed(driver: ShardDriver) -> tuple[ConsumerStub, MemberStub]:
    """Return a Stable consumer group with a member of each protocol."""
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    driver.advance(1_000)
    classic = a_member(driver)
    rejoin(classic)
    for _ in range(6):
        driver.advance(1_000)
        consumer.acknowledge()
        if classic.heartbeat().error is not NONE:
            rejoin(classic)
            classic.sync()
    assert describe_consumer(driver).state == "Stable"
    return consumer, classic
