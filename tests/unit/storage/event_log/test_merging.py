"""Events of one shard in several logs come in the order of its owners, not of their clocks."""

from __future__ import annotations

from collections.abc import Iterator

from groupkeeper.storage.event_log.merging import CLOCKS_DIFFER_MS, by_epochs, by_times
from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND
from groupkeeper.storage.segment_lines import EventDict


def event(name: str, shard: int, epoch: int, ts_ms: int, kind: str = "commit") -> EventDict:
    return {"group": name, "shard": shard, "lease_epoch": epoch, "ts_ms": ts_ms, "kind": kind}


def merged(*logs: list[EventDict]) -> str:
    return "".join(each["group"] for each in by_times([iter(log) for log in logs]))


def test_a_shard_that_came_back_is_in_order_although_the_clocks_differ() -> None:
    first = [event("a", 0, 1, 100), event("b", 0, 1, 200), event("e", 0, 3, 230)]
    second = [event("c", 0, 2, 50), event("d", 0, 2, 60)]
    assert merged(first, second) == merged(second, first) == "abcde"
    streams = [iter(second), iter(first)]
    assert "".join(each["group"] for each in by_epochs(streams)) == "abcde"


def test_shards_of_different_owners_are_in_the_order_of_times() -> None:
    first = [event("a", 0, 1, 100), event("c", 0, 1, 300)]
    second = [event("b", 1, 9, 200), event("d", 1, 9, 400)]
    assert merged(first, second) == "abcd"


def test_what_must_come_first_brings_what_is_before_it_in_its_log() -> None:
    first = [event("a", 5, 1, 190), event("b", 0, 1, 200)]
    second = [event("c", 0, 2, 50), event("d", 5, 2, 60)]
    assert merged(first, second) == "abcd"


def test_a_snapshot_which_has_the_epoch_of_its_group_holds_nothing_up() -> None:
    first = [event("s", -1, 9, 10, SNAPSHOT_KIND), event("b", -1, 2, 30)]
    second = [event("t", -1, 3, 20, SNAPSHOT_KIND), event("c", -1, 3, 40)]
    assert merged(first, second) == "stbc"


def test_a_log_is_read_ahead_only_as_far_as_clocks_may_differ() -> None:
    taken = 0

    def counted() -> Iterator[EventDict]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield event("x", 1, 1, 1_000 + number * CLOCKS_DIFFER_MS)

    streams = by_times([iter([event("a", 0, 1, 0), event("b", 0, 1, 1)]), counted()])
    assert [next(streams)["group"], next(streams)["group"]] == ["a", "b"]
    assert taken < 4


def test_one_log_is_passed_on() -> None:
    log = [event("a", 0, 2, 5), event("b", 0, 1, 4)]
    assert [*by_times([iter(log)])] == log
    assert [*by_times([])] == []
