"""The checks of a ConsumerGroupHeartbeat that do not depend on its group
(docs/spec/consumer-groups.md#validation).

The texts are those of Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.consumer import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
)

_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes: control characters and the ASCII space."""


class InvalidHeartbeat(NamedTuple):
    """The reason why a heartbeat is refused."""

    error: ErrorCode
    message: str


def heartbeat_error(
    request: ConsumerGroupHeartbeat, assignors: Sequence[str], *, client_makes_id: bool
) -> InvalidHeartbeat | None:
    """Return the first error of a heartbeat, in Kafka's order, or None.

    ``client_makes_id`` is False in version 0, where a member may join without an id.
    """
    wrong = _blank_error(request, client_makes_id=client_makes_id) or _epoch_error(request)
    if wrong is not None:
        return InvalidHeartbeat(ErrorCode.INVALID_REQUEST, wrong)
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        message = (
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}."
        )
        return InvalidHeartbeat(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    return None


def _blank_error(request: ConsumerGroupHeartbeat, *, client_makes_id: bool) -> str | None:
    epoch = request.member_epoch
    needs_id = client_makes_id or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    if needs_id and not request.member_id.strip(_BLANKS):
        return "MemberId can't be empty."
    if not request.group_id.strip(_BLANKS):
        return "GroupId can't be empty."
    if request.group_instance_id is not None and not request.group_instance_id.strip(_BLANKS):
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip(_BLANKS):
        return "RackId can't be empty."
    return None


def _epoch_error(request: ConsumerGroupHeartbeat) -> str | None:
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        return _join_error(request)
    if epoch == STATIC_LEAVE_EPOCH and request.group_instance_id is None:
        return "InstanceId can't be null."
    if epoch < STATIC_LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    return None


def _join_error(request: ConsumerGroupHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )
    return None
