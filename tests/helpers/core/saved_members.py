"""The saved state of a consumer group, in a form that does not depend on the order of members."""

from __future__ import annotations

from typing import Any

from groupkeeper.coordinator.core.consumer_records import ConsumerGroupRecord
from groupkeeper.coordinator.core.records import SavedGroup


def sorted_members(saved: SavedGroup | None) -> Any:
    """Return a saved group with its members in order, because a store may return another order."""
    if saved is None or not isinstance(saved.metadata, ConsumerGroupRecord):
        return saved
    record = saved.metadata
    by_id = {
        each.fields.member_id: (record.subscriptions[each.subscription], each)
        for each in record.members
    }
    return (
        record.epoch,
        record.target_epoch,
        record.metadata_hash,
        {
            member_id: (names, each.fields, each.current, each.target)
            for member_id, (names, each) in sorted(by_id.items())
        },
    )
