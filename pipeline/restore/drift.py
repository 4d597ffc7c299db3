"""Whether groups are at their source as they were when a migration was planned (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from groupkeeper.pipeline.restore.apply import NAMED, Outcome, Result
from groupkeeper.pipeline.restore.plan import (
    Change,
    Clamp,
    Committed,
    GroupPlan,
    Partition,
    renamed,
)


def drift(
    groups: Iterable[GroupPlan],
    now: Mapping[str, Mapping[Partition, Committed]],
    topics: Mapping[str, str],
) -> Iterator[Outcome]:
    """Say of each group whether it has moved on; ``now`` is what the source has, in its names."""
    for each in groups:
        try:
            there = renamed(now[each.group], topics)
        except ValueError as error:
            yield Outcome(
                each.group,
                Result.REFUSED,
                0,
                f"has moved on at the source since the plan was made: {error}. Plan again, with "
                "another --map",
            )
        else:
            yield moved_on(each, there)


def moved_on(group: GroupPlan, there: Mapping[Partition, Committed]) -> Outcome:
    """Say whether a group is at its source, in the target's names, as it was when planned."""
    planned = {
        Partition(each.topic, each.partition): (each.asked_for, _metadata(each))
        for each in group.changes
    }
    found = {key: (committed.offset, committed.metadata) for key, committed in there.items()}
    for key, (offset, metadata) in planned.items():
        if metadata is None and key in found:  # the plan does not know it: no difference
            planned[key] = offset, found[key][1]
    nothing = (None, None)
    moved = [
        f"{key.topic}-{key.partition} was {_value(*planned.get(key, nothing))}, is "
        f"{_value(*found.get(key, nothing))}"
        for key in sorted(planned.keys() | found.keys())
        if planned.get(key, nothing) != found.get(key, nothing)
    ]
    if not moved:
        return Outcome(group.group, Result.DONE_BEFORE)
    have = "1 partition has" if len(moved) == 1 else f"{len(moved):,} partitions have"
    more = f"; and {len(moved) - NAMED} more" if len(moved) > NAMED else ""
    return Outcome(
        group.group,
        Result.REFUSED,
        len(moved),
        f"{have} moved on at the source since the plan was made: {'; '.join(moved[:NAMED])}{more}. "
        "Stop its consumers there, undo what was applied of this plan, and plan again",
    )


def _metadata(each: Change) -> str | None:
    """The metadata that was found at the source; None where the plan does not keep it."""
    if each.clamp is Clamp.NO_PARTITION or each.target is None:
        return None
    return each.target.metadata


def _value(offset: int | None, metadata: str | None) -> str:
    if offset is None:
        return "none"
    return f"{offset} {metadata!r}" if metadata else str(offset)
