"""``docs/spec/states.md``: the tables and the diagram of ``transitions.py`` as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from groupkeeper.coordinator.core.classic.transitions import (
    AFTER_JOIN,
    AFTER_LEAVE,
    COMMIT_ANSWER,
    COMMIT_EXTENDS_SESSION,
    HEARTBEAT_ANSWER,
    PREDECESSORS,
    REJOIN_ACTION,
    STATIC_REJOIN_ACTION,
    SYNC_ACTION,
    SYNC_REFUSAL,
    RejoinAction,
    SyncAction,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

CAUSES: Mapping[tuple[GroupState, GroupState], str] = {
    (EMPTY, PREPARING): "a member joins",
    (PREPARING, COMPLETING): "the join phase ends with members",
    (PREPARING, EMPTY): "the join phase ends without members",
    (COMPLETING, STABLE): "the leader's SyncGroup is durable",
    (COMPLETING, PREPARING): "a member joins, leaves or expires",
    (STABLE, PREPARING): "a member joins, leaves or expires, or never synced",
}
"""(state, next state) -> the cause of the change. Dead follows any state if a shard is dropped."""


def diagram() -> str:
    """Return the states and their order as a Mermaid diagram."""
    lines = ["```mermaid", "stateDiagram-v2", "    direction LR", f"    [*] --> {EMPTY}"]
    for state, predecessors in PREDECESSORS.items():
        if state is DEAD:
            continue
        lines += [
            f"    {before} --> {state}: {CAUSES[before, state]}"
            for before in GroupState
            if before in predecessors
        ]
    return "\n".join([*lines, f"    {EMPTY} --> [*]: deleted or expired", "```"])


def answers() -> str:
    """Return a table of the answers to a Heartbeat, SyncGroup and OffsetCommit, by state."""
    head = ("state", "Heartbeat", "SyncGroup", "OffsetCommit", "a commit keeps the session alive")
    return _table(
        head,
        (
            (
                state,
                _code(HEARTBEAT_ANSWER[state]),
                _sync(state),
                _code(COMMIT_ANSWER[state]),
                "yes" if state in COMMIT_EXTENDS_SESSION else "no",
            )
            for state in HEARTBEAT_ANSWER
        ),
    )


def joins() -> str:
    """Return a table of the effects of a member's JoinGroup, by state."""
    head = ("state", "member", "the same protocols", "other protocols")
    return _table(
        head,
        (
            (
                state,
                "leader" if leads else "follower",
                _rejoin(REJOIN_ACTION[state, leads, False]),
                _rejoin(REJOIN_ACTION[state, leads, True]),
            )
            for state in HEARTBEAT_ANSWER
            for leads in (True, False)
        ),
    )


def static_joins() -> str:
    """Return a table of what follows if a static member joins without its member id, by state."""
    rows = ((state, action.value) for state, action in STATIC_REJOIN_ACTION.items())
    return _table(("state", "what follows"), rows)


def changes() -> str:
    """Return a table of what follows after members were added or removed, by state."""
    rows = ((each, AFTER_JOIN[each].value, AFTER_LEAVE[each].value) for each in HEARTBEAT_ANSWER)
    return _table(("state", "after a join", "after a leave or an eviction"), rows)


def _sync(state: GroupState) -> str:
    action = SYNC_ACTION[state]
    return _code(SYNC_REFUSAL[state]) if action is SyncAction.REFUSE else action.value


def _rejoin(action: RejoinAction) -> str:
    return f"`{action.value}`" if action is RejoinAction.REFUSE else action.value


def _code(code: ErrorCode) -> str:
    return f"`{code.name}`"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(head)
    lines = [cells, ["---"] * len(cells), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
