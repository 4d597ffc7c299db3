"""Which groups a fold takes, and what is left."""

from __future__ import annotations

from coordinator.core.records import PartitionEnd, SavedGroup, SavedOffset
from storage.base import Batch, ShardAppend
from storage.record_codec import decode_saved
from storage.sqlite_fold import (
    IDLE_SLICE_GROUPS,
    MAX_SLICE_BYTES,
    MIN_SLICE_GROUPS,
    Changes,
    FoldedGroup,
    FoldMap,
    changes_of,
)
from tests.helpers.records import commit


def saved(group_id: str, size: int = 10) -> SavedGroup:
    return SavedGroup(group_id, None, {"t": {0: SavedOffset(1, -1, "x" * size, 1, -1, "")}})


def item(shard: int, *group_ids: str, size: int = 10) -> ShardAppend:
    """An append of one commit for each group."""
    batches = [Batch([commit(group_id, 1)], []) for group_id in group_ids]
    return ShardAppend(shard, 1, batches, lambda group_id: saved(group_id, size))


class Log:
    """A fold map that is told what an append tells it, in the same order."""

    def __init__(self, fold_after: int) -> None:
        self.map = FoldMap(fold_after)
        self.row = 0

    def append(self, *items: ShardAppend) -> list[str]:
        """Append, and return the groups that were folded with it."""
        changes = changes_of(items)
        folded = self.map.slice(items, changes)
        if any(each.batches for each in items):
            self.row += 1
            self.map.note(self.row, changes)
        self.map.fold(self.row, folded)
        return [group.group_id for group in folded]

    @property
    def folded_row(self) -> int:
        return self.map.folded_row(self.row)


def test_a_request_counts_once_however_many_records_of_groups_it_has() -> None:
    batch = Batch([commit("a", 1), commit("b", 1)], [])
    without = Batch([PartitionEnd("x", 0, 1)], [])
    changes = changes_of([ShardAppend(3, 1, [batch, without, batch], saved)])
    assert changes == Changes([(3, "a"), (3, "b")], 2)


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
    log = Log(fold_after=0)
    third = MAX_SLICE_BYTES // 3
    assert log.append(item(0, "a", "b", "c", "d", size=third)) == ["a", "b"]
    log = Log(fold_after=0)
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
    folded = FoldMap(0).slice(
        [ShardAppend(2, 1, [Batch([commit("a", 1)], [])], lambda _: None)], Changes([(2, "a")], 1)
    )
    assert folded == [FoldedGroup(2, "a", None)]


def test_a_state_is_what_saved_says_at_that_moment() -> None:
    append = item(2, "a")
    (folded,) = FoldMap(0).slice([append], changes_of([append]))
    assert folded.state is not None
    assert decode_saved(folded.state) == saved("a")
