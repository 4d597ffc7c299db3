"""The state rules of a classic group, as tables that the code uses and the documentation prints.

See docs/spec/groups.md, docs/spec/joining.md and docs/spec/membership.md (Kafka: ClassicGroupState,
GroupMetadataManager). Rules that depend on more than the state are in the functions that read the
tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

PREDECESSORS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({STABLE, COMPLETING, EMPTY}),
    COMPLETING: frozenset({PREPARING}),
    STABLE: frozenset({COMPLETING}),
    DEAD: frozenset({EMPTY, PREPARING, COMPLETING, STABLE, DEAD}),
}
"""The states from which each state may be entered (docs/spec/groups.md#states)."""

HEARTBEAT_ANSWER: Final[Mapping[GroupState, ErrorCode]] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING: ErrorCode.NONE,  # members send heartbeats between join and sync
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The answer to a heartbeat of a member in the current generation.

NONE and REBALANCE_IN_PROGRESS restart the session of the member
(docs/spec/membership.md#heartbeat).
"""


class SyncAction(Enum):
    """The effect of a SyncGroup of a member in the current generation."""

    REFUSE = "answer the error of SYNC_REFUSAL"
    PARK = "park; the leader's SyncGroup brings the assignment and makes the group Stable"
    ANSWER = "answer the stored assignment"


SYNC_ACTION: Final[Mapping[GroupState, SyncAction]] = {
    EMPTY: SyncAction.REFUSE,
    PREPARING: SyncAction.REFUSE,
    COMPLETING: SyncAction.PARK,
    STABLE: SyncAction.ANSWER,
    DEAD: SyncAction.REFUSE,
}
"""State of the group -> what a SyncGroup does (docs/spec/membership.md#sync-group, step 5)."""

SYNC_REFUSAL: Final[Mapping[GroupState, ErrorCode]] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class RejoinAction(Enum):
    """The effect of a JoinGroup of an existing member."""

    REFUSE = "UNKNOWN_MEMBER_ID"
    PARK = "update the member, park, complete the join phase if all have joined"
    ANSWER = "answer the current generation at once"
    REBALANCE = "update the member, start a rebalance"


REJOIN_ACTION: Final[Mapping[tuple[GroupState, bool, bool], RejoinAction]] = {
    # (state, is the leader, protocols changed)
    (PREPARING, False, False): RejoinAction.PARK,
    (PREPARING, False, True): RejoinAction.PARK,
    (PREPARING, True, False): RejoinAction.PARK,
    (PREPARING, True, True): RejoinAction.PARK,
    # The reply to the first join may have been lost, so it is repeated.
    (COMPLETING, False, False): RejoinAction.ANSWER,
    (COMPLETING, True, False): RejoinAction.ANSWER,
    (COMPLETING, False, True): RejoinAction.REBALANCE,
    (COMPLETING, True, True): RejoinAction.REBALANCE,
    (STABLE, False, False): RejoinAction.ANSWER,
    (STABLE, False, True): RejoinAction.REBALANCE,
    # A leader rejoins to trigger a new assignment, for instance after its topics changed.
    (STABLE, True, False): RejoinAction.REBALANCE,
    (STABLE, True, True): RejoinAction.REBALANCE,
    (EMPTY, False, False): RejoinAction.REFUSE,
    (EMPTY, False, True): RejoinAction.REFUSE,
    (EMPTY, True, False): RejoinAction.REFUSE,
    (EMPTY, True, True): RejoinAction.REFUSE,
    (DEAD, False, False): RejoinAction.REFUSE,
    (DEAD, False, True): RejoinAction.REFUSE,
    (DEAD, True, False): RejoinAction.REFUSE,
    (DEAD, True, True): RejoinAction.REFUSE,
}
"""(state, is the leader, protocols changed) -> what a JoinGroup of an existing member does. See
docs/spec/joining.md#join-group, "Existing member rejoining, by state".
"""


class StaticRejoinAction(Enum):
    """The effect of a JoinGroup of a static member without a member id."""

    KEEP = "keep the generation if the chosen protocol stays the same, else rebalance"
    REBALANCE = "start a rebalance"
    PARK = "park, complete the join phase if all have joined"


STATIC_REJOIN_ACTION: Final[Mapping[GroupState, StaticRejoinAction]] = {
    STABLE: StaticRejoinAction.KEEP,
    # the leader may be assigning partitions to the old id
    COMPLETING: StaticRejoinAction.REBALANCE,
    PREPARING: StaticRejoinAction.PARK,
}
"""State of the group -> what the JoinGroup of a returning static member does
(docs/spec/joining.md#static-members). An Empty group has no members, not even static ones.
"""


class MembershipChange(Enum):
    """The next step of a group after members were added or removed."""

    PREPARE = "start a rebalance"
    TRY_COMPLETE = "complete the join phase if all have joined"
    NOTHING = "nothing"


AFTER_JOIN: Final[Mapping[GroupState, MembershipChange]] = {
    EMPTY: MembershipChange.PREPARE,
    PREPARING: MembershipChange.TRY_COMPLETE,
    COMPLETING: MembershipChange.PREPARE,
    STABLE: MembershipChange.PREPARE,
    DEAD: MembershipChange.NOTHING,
}
AFTER_LEAVE: Final[Mapping[GroupState, MembershipChange]] = {
    EMPTY: MembershipChange.NOTHING,
    PREPARING: MembershipChange.TRY_COMPLETE,
    COMPLETING: MembershipChange.PREPARE,
    STABLE: MembershipChange.PREPARE,
    DEAD: MembershipChange.NOTHING,
}

COMMIT_ANSWER: Final[Mapping[GroupState, ErrorCode]] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,  # for any generation: docs/spec/edge-cases.md#edge-63
    PREPARING: ErrorCode.NONE,  # a member may commit in the generation that ends (KIP-429)
    COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The answer to a commit with the right member and generation.

See docs/spec/offsets.md#who-may-commit.
"""

COMMIT_EXTENDS_SESSION: Final[frozenset[GroupState]] = frozenset({PREPARING, STABLE})
"""States in which a commit restarts the member's session.

See docs/spec/offsets.md#commit, step 7; Kafka's OffsetMetadataManager.validateOffsetCommit.
"""
