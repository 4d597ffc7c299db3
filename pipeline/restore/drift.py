"""Compares the present offsets at the source of a migration with those in the plan (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

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
    owners: Callable[[str], Mapping[Partition, str]] = lambda _: {},
) -> Iterator[Outcome]:
    """Yield the outcome for each group: ``REFUSED`` if its offsets at the source have changed since
    the plan was made, otherwise ``DONE_BEFORE``.

    ``now`` has the present offsets, with the topic names of the source. ``topics`` maps these names
    to the names at the target. ``owners`` is called for each changed group. It maps the partitions
    of the group to its members, for the message.
    """
    for each in groups:
        try:
            there = renamed(now[each.group], topics)
        except ValueError as error:
            yield Outcome(
                each.group,
                Result.REFUSED,
                0,
                f"has changed at the source since the plan was made: {error}. Plan again, with "
                "another --map",
            )
        else:
            outcome = moved_on(each, there)
            if not outcome.is_well:
                outcome = moved_on(each, there, _renamed(owners(each.group), topics))
            yield outcome


def _renamed(owners: Mapping[Partition, str], topics: Mapping[str, str]) -> dict[Partition, str]:
    return {
        Partition(topics.get(topic, topic), number): owner
        for (topic, number), owner in owners.items()
    }


NO_OWNERS: Final[Mapping[Partition, str]] = {}


def moved_on(
    group: GroupPlan,
    there: Mapping[Partition, Committed],
    owners: Mapping[Partition, str] = NO_OWNERS,
) -> Outcome:
    """Compare the present offsets of one group at its source (``there``) with the plan.

    ``there`` and ``owners`` have the topic names of the target. If offsets have changed, the
    message of the outcome names some of them, and the members that own these partitions.
    """
    planned = {
        Partition(each.topic, each.partition): (each.asked_for, _metadata(each))
        for each in group.changes
    }
    found = {key: (committed.offset, committed.metadata) for key, committed in there.items()}
    for key, (offset, metadata) in planned.items():
        if metadata is None and key in found:  # unknown in the plan, so it counts as equal
            planned[key] = offset, found[key][1]
    nothing = (None, None)
    moved = [
        f"{key.topic}-{key.partition} was {_value(*planned.get(key, nothing))}, is "
        f"{_value(*found.get(key, nothing))}{f' (of {owners[key]})' if key in owners else ''}"
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
        f"{have} changed at the source since the plan was made: {'; '.join(moved[:NAMED])}{more}. "
        "Stop its consumers there, undo what was applied of this plan, and plan again",
    )


def _metadata(each: Change) -> str | None:
    """Return the metadata that the source had when the plan was made. Return None if the plan does
    not have it.
    """
    if each.clamp is Clamp.NO_PARTITION or each.target is None:
        return None
    return each.target.metadata


def _value(offset: int | None, metadata: str | None) -> str:
    if offset is None:
        return "none"
    return f"{offset} {metadata!r}" if metadata else str(offset)
