"""Which differences chance of time explains: whether and when an answer came, and who was in time.

On a busy machine a timer of one side fires late, or one side reads a request late. That changes
which answer comes first, and from it follows which members a group has, its generation and its
state. It never changes what was committed, what something is called, or how it is configured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.conformance.kafka.comparison import CLOSED, ON_TIME, PARKED, Difference

CODES = frozenset({0, 14, 15, 16, 22, 25, 27})
"""Errors that say who was in time: none, a coordinator that is not ready (an append took too
long), another generation, a member that is gone, a rebalance.
"""
STATES = frozenset({"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"})
"""Of a group that there is: whether there is one is not a matter of time."""


def _codes(kafka: Any, ours: Any) -> bool:
    return kafka in CODES and ours in CODES


def _states(kafka: Any, ours: Any) -> bool:
    return kafka in STATES and ours in STATES


def _any(kafka: Any, ours: Any) -> bool:
    return True


IN_TIME: dict[tuple[str, str], Callable[[Any, Any], bool]] = {
    ("join_group", "error_code"): _codes,
    ("join_group", "generation_id"): _any,
    ("join_group", "leader"): _any,
    ("join_group", "members"): _any,  # chance decides their number
    ("sync_group", "error_code"): _codes,
    ("heartbeat", "error_code"): _codes,
    ("leave_group", "error_code"): _codes,
    ("leave_group", "members.error_code"): _codes,
    ("offset_commit", "topics.partitions.error_code"): _codes,
    ("describe_groups", "groups.group_state"): _states,
    ("describe_groups", "groups.members"): _any,  # chance decides their number
    ("list_groups", "groups.group_state"): _states,
}
"""API and field that say who was in time, and which values of them do."""

FOLLOWS: dict[str, tuple[str, frozenset[str]]] = {
    "join_group": (
        "error_code",
        frozenset({"protocol_type", "protocol_name", "member_id", "skip_assignment"}),
    ),
    "sync_group": ("error_code", frozenset({"assignment", "protocol_type", "protocol_name"})),
    "describe_groups": (
        "groups.group_state",
        frozenset(
            {
                "groups.protocol_data",
                "groups.members.member_metadata",
                "groups.members.member_assignment",
            }
        ),
    ),
}
"""By API: where this field differs, these of the same answer do too, and only there."""


def explained(found: Sequence[Difference]) -> bool:
    """Say whether chance of time explains all that differed in one run of a case."""
    decisive = {(one.answer, one.api, one.field) for one in found if _says_who_was_in_time(one)}

    def follows(one: Difference) -> bool:
        of, fields = FOLLOWS.get(one.api, ("", frozenset()))
        return one.field in fields and (one.answer, one.api, of) in decisive

    return all(_is_late(one) or _says_who_was_in_time(one) or follows(one) for one in found)


def _says_who_was_in_time(one: Difference) -> bool:
    holds = IN_TIME.get((one.api, one.field))
    return holds is not None and holds(one.kafka, one.ours)


def _is_late(one: Difference) -> bool:
    """One answer came much later than the other, or not yet; none says what it must not."""
    if one.field:
        return False
    if one.kafka == ON_TIME:
        return True
    answers = [answer for answer in (one.kafka, one.ours) if answer != PARKED]
    if len(answers) != 1 or answers[0] == CLOSED:
        return False
    return answers[0].get("error_code", 0) in CODES
