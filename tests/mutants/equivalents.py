"""Drawn mutants that no test can catch, because they change nothing; each with its proof.

The key is file, function and change. When that code changes, the run asks for another look.
"""

from __future__ import annotations

from typing import Final

EQUIVALENTS: Final[dict[str, str]] = {
    "coordinator/core/assignors/take_back.py _Search.cancel: node < self._first_pool <= to < "
    "self._first_level -> node < self._first_pool <= to <= self._first_level": (
        "a member goes on to first_level + its load + 1, never to first_level itself"
    ),
    "coordinator/core/assignors/flow.py Flow._shift_down: break -> pass": (
        "a shortcut: once all are met, the pools that are left bring nobody"
    ),
    "coordinator/core/assignors/flow.py Flow._low_member: return None -> pass": (
        "a shortcut: its members' loads are as high, and the look at them comes to None too"
    ),
    "coordinator/core/classic/joining.py _rejoin: ErrorCode.UNKNOWN_MEMBER_ID -> "
    "ErrorCode.UNKNOWN_SERVER_ERROR": (
        "no request comes so far: an Empty group has no members, and a shard keeps no Dead one"
    ),
    "coordinator/handlers/configs/incremental_alter_configs.py handle: ErrorCode.NONE -> "
    "ErrorCode.POLICY_VIOLATION": (
        "every resource was refused here already: what the shard is said to answer is not looked at"
    ),
    "coordinator/core/offsets/commit.py _too_long: 2 * length > limit -> 2 * length >= limit": (
        "a shortcut: what it saves is a count of twice the length at the most, the limit itself"
    ),
    "coordinator/core/offsets/commit.py _is_one_twice: "
    "len({row[0] for row in partitions}) < len(partitions) -> "
    "len({row[0] for row in partitions}) <= len(partitions)": (
        "over partitions that are named once, an overlay shows what is stored: only slower"
    ),
    "coordinator/core/offsets/commit.py _goes_on: new < old -> new <= old": (
        "judged one by one, an offset that stays is taken as well: only slower"
    ),
    "coordinator/core/offsets/commit.py check_partitions: "
    "len(set(map(_TOPIC, topics))) < len(topics) -> len(set(map(_TOPIC, topics))) <= len(topics)": (
        "over topics that are named once, an overlay shows what is stored: only slower"
    ),
    "coordinator/core/offsets/commit.py check_partitions: len(topics) > 1 -> len(topics) >= 1": (
        "one topic is not named twice: only slower"
    ),
    "coordinator/handlers/topic_changes.py submit: ErrorCode.NONE -> "
    "ErrorCode.COORDINATOR_LOAD_IN_PROGRESS": (
        "every topic was refused here already, so what the shard is said to answer is not looked at"
    ),
}
