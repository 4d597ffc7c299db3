from __future__ import annotations

from groupkeeper.coordinator.core.events import (
    AssignmentFailed,
    CommitRejected,
    GroupCreated,
    MemberFenced,
    PatternRefused,
)
from groupkeeper.coordinator.runtime.merge import MAX_KEPT_CHARS, RefusalMerger


def fenced(member_id: str = "m", error: str = "FENCED_INSTANCE_ID") -> MemberFenced:
    return MemberFenced(group_id="g", member_id=member_id, error=error)


def rejected(member_id: str = "m") -> CommitRejected:
    return CommitRejected(group_id="g", member_id=member_id, error="ILLEGAL_GENERATION")


def test_the_first_refusal_of_a_member_is_written_at_once() -> None:
    merger = RefusalMerger(10_000, 100)
    assert merger.admit(3, [fenced()], 0) == [fenced()]
    assert merger.admit(3, [fenced("other"), rejected()], 0) == [fenced("other"), rejected()]


def test_repeats_become_one_event_with_a_count_when_the_window_ends() -> None:
    merger = RefusalMerger(10_000, 100)
    merger.admit(3, [fenced()], 0)
    for _ in range(7):
        assert merger.admit(3, [fenced()], 5_000) == []
    assert merger.due(9_999) == []
    ((shard, event),) = merger.due(10_000)
    assert shard == 3
    assert event == MemberFenced(group_id="g", member_id="m", error="FENCED_INSTANCE_ID", count=7)


def test_a_refusal_that_goes_on_makes_one_event_a_window() -> None:
    merger = RefusalMerger(10_000, 100)
    merger.admit(0, [fenced()], 0)
    merger.admit(0, [fenced()], 1)
    assert len(merger.due(10_000)) == 1
    assert merger.admit(0, [fenced()], 10_001) == []
    assert len(merger.due(20_000)) == 1
    assert merger.due(30_000) == []
    assert merger.admit(0, [fenced()], 30_001) == [fenced()]


def test_another_error_of_the_same_member_is_news() -> None:
    merger = RefusalMerger(10_000, 100)
    merger.admit(0, [fenced()], 0)
    assert merger.admit(0, [fenced(error="ILLEGAL_GENERATION")], 1) != []


def test_other_events_pass() -> None:
    merger = RefusalMerger(10_000, 100)
    created = GroupCreated(group_id="g")
    assert merger.admit(0, [created, created], 0) == [created, created]


def test_windows_are_bounded_and_no_count_is_lost() -> None:
    merger = RefusalMerger(10_000, 2)
    for number in range(4):
        merger.admit(0, [fenced(f"m{number}")], number)
        merger.admit(0, [fenced(f"m{number}")], number)
    early = [event.member_id for _, event in merger.due(10)]
    late = [event.member_id for _, event in merger.due(20_000)]
    assert early == ["m0", "m1"]
    assert late == ["m2", "m3"]


def test_at_the_end_everything_counted_is_written() -> None:
    merger = RefusalMerger(10_000, 100)
    merger.admit(0, [fenced(), fenced(), rejected()], 0)
    assert [event.count for _, event in merger.end_all()] == [1]  # type: ignore[union-attr]
    assert merger.end_all() == []


def test_a_refusal_with_long_names_is_written_each_time_and_not_kept() -> None:
    merger = RefusalMerger(10_000, 100)
    long = fenced("m" * (MAX_KEPT_CHARS + 1))
    assert merger.admit(0, [long, long], 0) == [long, long]
    assert merger.end_all() == []
    short = fenced("m" * (MAX_KEPT_CHARS - 1))
    assert merger.admit(0, [short, short], 0) == [short]


def test_all_patterns_of_a_group_share_a_window_whoever_sends_them():
    merger = RefusalMerger(10_000, 100)
    sent = [
        PatternRefused(group_id="g", member_id=f"m{n}", pattern=f"({n}", detail="missing )")
        for n in range(100)
    ]
    admitted = [event for event in sent if merger.admit(0, [event], 0)]
    assert admitted == sent[:1]
    ((_, merged),) = merger.due(10_000)
    assert merged == PatternRefused(
        group_id="g", member_id="m99", pattern="(99", detail="missing )", count=99
    )


def test_failures_to_assign_are_merged_for_each_group():
    merger = RefusalMerger(10_000, 100)

    def failed(group_id: str, epoch: int) -> AssignmentFailed:
        return AssignmentFailed(
            group_id=group_id, generation_id=epoch, assignor="uniform", reason="died"
        )

    sent = [failed(group_id, epoch) for epoch in range(5) for group_id in ("g", "h")]
    assert merger.admit(0, sent, 0) == sent[:2]
    assert [(event.group_id, event.count) for _, event in merger.due(10_000)] == [
        ("g", 4),
        ("h", 4),
    ]
