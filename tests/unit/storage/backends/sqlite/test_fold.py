"""Which groups a fold takes, and what is left."""

from __future__ import annotations

from groupkeeper.coordinator.core.events import MemberFenced
from groupkeeper.coordinator.core.records import PartitionEnd, SavedGroup, SavedOffset, SavedOffsets
from groupkeeper.storage.backends.group_parts import MAX_PART_BYTES
from groupkeeper.storage.backends.sqlite.fold import (
    IDLE_SLICE_GROUPS,
    MAX_SLICE_BYTES,
    MIN_RETRY_SLICES,
    MIN_SLICE_GROUPS,
    FoldedGroup,
    FoldMap,
    FoldWork,
    changes_of,
)
from groupkeeper.storage.base import Batch, ShardAppend
from groupkeeper.storage.codec.records import decode_record, decode_saved
from tests.helpers.core.records import commit

EVENT = MemberFenced(group_id="a", error="FENCED_INSTANCE_ID")


def saved(group_id: str, size: int = 10) -> SavedGroup:
    return SavedGroup(group_id, None, {"t": {0: SavedOffset(1, -1, "x" * size, 1, -1, "")}})


def item(shard: int, *group_ids: str, size: int = 10) -> ShardAppend:
    """An append of one commit for each group."""
    batches = [Batch([commit(group_id, 1)], []) for group_id in group_ids]
    return ShardAppend(shard, 1, batches, lambda group_id: saved(group_id, size))


class Log:
    """A fold map that is told what an append tells it, in the same order."""

    def __init__(self, fold_after: int, part_bytes: int = MAX_PART_BYTES) -> None:
        self.map = FoldMap(fold_after, part_bytes)
        self.row = 0

    def begin(self, *items: ShardAppend) -> FoldWork:
        """Append; what is folded besides is on its way."""
        self.map.settle()
        if any(each.batches for each in items):
            self.row += 1
        return self.map.work(items, self.row, changes_of(items), has_keyed=False)

    def end(self, work: FoldWork, error: Exception | None = None) -> None:
        """What the thread does."""
        work.error = error
        work.has_keyed = False
        work.is_done = True
        self.map.settle()

    def append(self, *items: ShardAppend) -> list[str]:
        """Append, and return the groups that were folded with it."""
        work = self.begin(*items)
        self.end(work)
        return [group.group_id for group in work.groups]

    @property
    def folded_row(self) -> int:
        return self.map.folded_row(self.row)


def test_a_request_counts_once_however_many_records_of_groups_it_has() -> None:
    batch = Batch([commit("a", 1), commit("b", 1)], [])
    without = Batch([PartitionEnd("x", 0, 1)], [])
    changes = changes_of([ShardAppend(3, 1, [batch, without, batch], saved)])
    assert changes.groups == [(3, "a"), (3, "b")]
    assert changes.requests == 2


def test_only_a_batch_of_one_commit_is_counted_as_a_commit() -> None:
    lone = Batch([commit("a", 1)], [])
    with_event = Batch([commit("a", 1)], [EVENT])
    two = Batch([commit("a", 1), commit("b", 1)], [])
    end = Batch([PartitionEnd("x", 0, 1)], [])
    rider = Batch((), [EVENT])
    changes = changes_of(
        [
            ShardAppend(3, 1, [lone, with_event, lone], saved),
            ShardAppend(4, 1, [two, end, rider], saved),
        ]
    )
    assert changes.commits == 2
    assert changes.others == [(3, with_event), (4, two), (4, end), (4, rider)]


def test_a_row_of_one_commit_is_noted_as_any_other_row() -> None:
    """In another shard, in the same group again, and in another group."""
    any_row, one_commit = Log(fold_after=3), Log(fold_after=3)
    for row, (shard, group_id) in enumerate([(0, "a"), (3, "b"), (0, "a"), (0, "c")], 1):
        any_row.map.note(row, changes_of([item(shard, group_id)]))
        one_commit.map.note_commit(row, shard, group_id)
    any_row.row = one_commit.row = 4
    for log in (any_row, one_commit):
        assert (log.map.unfolded, log.folded_row) == (4, 0)
        assert log.append(item(0)) == ["a", "c"]
        assert (log.map.unfolded, log.folded_row) == (3, 1)
        assert log.append(item(3)) == ["b"]
        assert (log.map.unfolded, log.folded_row) == (0, 4)


def test_up_to_the_threshold_nothing_is_folded() -> None:
    log = Log(fold_after=3)
    assert [log.append(item(0, name)) for name in "abc"] == [[], [], []]
    assert (log.map.unfolded, log.folded_row) == (3, 0)


def test_beyond_it_the_oldest_go_first_whichever_shard_they_are_of() -> None:
    log = Log(fold_after=9)
    for number in range(9):
        log.append(item(number % 3, f"g{number}"))
    folded = log.append(item(0, "new"), item(1), item(2))
    assert folded == [f"g{number}" for number in range(MIN_SLICE_GROUPS)]
    assert (log.map.unfolded, log.folded_row) == (2, 8)


def test_a_group_that_changes_again_keeps_the_age_of_its_oldest_unfolded_change() -> None:
    log = Log(fold_after=20)
    for _ in range(5):
        for number in range(4):
            log.append(item(0, f"g{number}"))
    assert log.append(item(0, "g0")) == ["g0", "g1", "g2", "g3"]
    assert (log.map.unfolded, log.folded_row) == (0, 21)


def test_as_many_are_folded_as_an_append_makes_dirty() -> None:
    log = Log(fold_after=0)
    names = [f"g{number}" for number in range(3 * MIN_SLICE_GROUPS)]
    assert log.append(item(0, *names)) == names
    assert log.map.unfolded == 0


def test_groups_of_shards_that_are_not_in_the_append_wait_and_hold_the_folded_row() -> None:
    log = Log(fold_after=1)
    log.append(item(0, "a"))
    assert log.append(item(1, "b")) == ["b"]
    assert (log.map.unfolded, log.folded_row) == (2, 0)
    assert log.append(item(0)) == ["a"]
    assert (log.map.unfolded, log.folded_row) == (0, 2)


def test_a_slice_stays_below_a_megabyte_but_never_empty() -> None:
    third = MAX_SLICE_BYTES // 3
    log = Log(fold_after=0, part_bytes=3 * MAX_SLICE_BYTES)
    assert log.append(item(0, "a", "b", "c", "d", size=third)) == ["a", "b"]
    log = Log(fold_after=0, part_bytes=9 * MAX_SLICE_BYTES)
    assert log.append(item(0, "a", "b", size=MAX_SLICE_BYTES + 1)) == ["a"]


def test_an_append_that_only_folds_does_so_below_the_threshold_too() -> None:
    log = Log(fold_after=50_000)
    names = [f"g{number}" for number in range(IDLE_SLICE_GROUPS + 1)]
    log.append(item(0, *names))
    assert log.append(item(0)) == names[:-1]
    assert log.append(item(0)) == names[-1:]
    assert log.append(item(0)) == []
    assert (log.map.unfolded, log.folded_row) == (0, 1)


def test_a_group_that_is_gone_is_folded_without_a_state() -> None:
    work = Log(fold_after=0).begin(ShardAppend(2, 1, [Batch([commit("a", 1)], [])], lambda _: None))
    assert work.groups == [FoldedGroup(2, "a", None)]


def test_a_state_is_what_saved_says_at_that_moment() -> None:
    (folded,) = Log(fold_after=0).begin(item(2, "a")).groups
    assert folded.state is not None
    assert decode_saved(folded.state) == saved("a")


def test_what_was_taken_holds_the_folded_row_until_it_is_known_to_be_written() -> None:
    log = Log(fold_after=0)
    first = log.begin(item(0, "a"))
    second = log.begin(item(0, "b"))
    assert (log.map.unfolded, log.folded_row, log.map.is_waiting) == (2, 0, True)
    log.end(first)
    assert (log.map.unfolded, log.folded_row) == (1, 1)
    log.end(second)
    assert (log.map.unfolded, log.folded_row, log.map.is_waiting) == (0, 2, False)


def test_a_group_that_changes_while_it_is_written_is_dirty_by_its_later_change() -> None:
    log = Log(fold_after=10)
    log.append(item(0, "a"))
    work = log.begin(item(0))
    assert [group.group_id for group in work.groups] == ["a"]
    assert log.begin(item(0, "a")).groups == []
    log.end(work)
    assert (log.map.unfolded, log.folded_row) == (1, 1)


def test_what_could_not_be_written_is_put_off_and_holds_the_folded_row() -> None:
    log = Log(fold_after=0)
    log.end(log.begin(item(0, "a", "b")), ValueError("no"))
    for _ in range(MIN_RETRY_SLICES - 1):
        assert log.append(item(0, "c")) == ["c"]
        assert log.folded_row == 0
    assert log.append(item(0, "c")) == ["a"], "one by one, for one of them may be to blame"
    assert log.append(item(0)) == ["b"]
    assert log.append(item(0)) == ["c"]
    assert log.folded_row == log.row


def test_a_group_whose_folds_fail_twice_is_unfolded_from_its_oldest_change_on() -> None:
    """Otherwise a load would not read the first change, which no fold has written."""
    log = Log(fold_after=0)
    for _ in range(2):
        log.end(log.begin(item(0, "a")), ValueError("no"))
        assert log.folded_row == 0


def test_the_wait_for_what_fails_again_and_again_doubles() -> None:
    log = Log(fold_after=0)
    log.end(log.begin(item(0, "a")), ValueError("no"))
    tried = []
    for number in range(60):
        work = log.begin(item(0))
        log.end(work, ValueError("no") if work.groups else None)
        tried += [number] * bool(work.groups)
    assert tried == [7, 23, 55]
    assert log.map.failures_in_a_row == 4


def test_a_large_group_goes_in_parts_and_is_folded_with_the_last() -> None:
    large = SavedGroup("g", None, {"t": {n: SavedOffset(n, -1, "", 1, -1, "") for n in range(20)}})
    append = ShardAppend(0, 1, [Batch([commit("g", 1)], [])], lambda _: large)
    log = Log(fold_after=0, part_bytes=1_000)
    parts = []
    work = log.begin(append)
    while work.part is not None:
        assert log.folded_row == 0
        assert log.begin(ShardAppend(0, 1, [], lambda _: large)).part is None, "one at a time"
        parts.append(work.part)
        log.end(work)
        work = log.begin(ShardAppend(0, 1, [], lambda _: large))
    assert [part.number for part in parts] == [0, 1, 2]
    assert [part.head is not None for part in parts] == [False, False, True]
    records = [decode_record(part.state) for part in parts]
    assert all(isinstance(record, SavedOffsets) for record in records)
    numbers = [n for record in records for n in record.offsets["t"]]  # type: ignore[union-attr]
    assert numbers == list(range(20))
    assert (log.map.unfolded, log.folded_row) == (0, 1)


def test_the_folded_row_stays_below_the_oldest_of_several_groups_while_they_are_written() -> None:
    log = Log(fold_after=2)
    log.append(item(0, "a"))
    log.append(item(0, "b"))
    work = log.begin(item(0, "c"))
    assert [group.group_id for group in work.groups] == ["a", "b", "c"]
    assert log.folded_row == 0
    log.end(work)
    assert log.folded_row == 3


def test_parts_that_a_group_gets_while_its_earlier_ones_are_cleared_are_cleared_later() -> None:
    log = Log(fold_after=0, part_bytes=1_000)
    small, large = item(0, "g"), item(0, "g", size=300)  # the estimate is larger than one part
    log.end(log.begin(large))
    shrunk = log.begin(small)
    assert shrunk.clears == [(0, "g")]
    grown = log.begin(large)
    assert grown.part is not None
    log.end(shrunk)
    log.end(grown)
    assert log.begin(small).clears == [(0, "g")]
