"""The offsets at the horizon, as events."""

from __future__ import annotations

import msgspec

from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.storage.codec.events import Stamp, event_dict
from groupkeeper.storage.event_log.sealing.snapshots import OffsetsAsOf
from groupkeeper.storage.event_log.snapshot_logs import SnapshotLog
from tests.helpers.core.records import commit

STAMP = Stamp("log", 2_000, 2_000)


def test_a_group_keeps_its_type_beyond_the_horizon() -> None:
    offsets = OffsetsAsOf()
    of_consumer = msgspec.structs.replace(commit("new", 1), group_type=GroupType.CONSUMER)
    for seq, event in enumerate((commit("old", 1), of_consumer), start=1):
        offsets.apply(event_dict(STAMP, seq, 7, 3, event))
    events = offsets.events(SnapshotLog("0" * 32, 9), 3_000, 8)
    assert {e["group"]: e["group_type"] for e in events} == {"old": "classic", "new": "consumer"}


def test_a_store_without_commits_has_a_snapshot_without_a_group() -> None:
    (event,) = OffsetsAsOf().events(SnapshotLog("0" * 32, 9), 3_000, 8)
    assert (event["group"], event["group_type"]) == ("", "")
