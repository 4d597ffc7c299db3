"""What new events about members and rebalances change of a day, and what they leave."""

from __future__ import annotations

import shutil
from random import Random

import pyarrow as pa
import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.tables import compute
from groupkeeper.pipeline.tables.tail import tail
from tests.pipeline.conftest import a_site
from tests.pipeline.events import at, joined
from tests.pipeline.test_growth import differences
from tests.pipeline.test_hard_days import assigned, ended, loaded


def a_life(random: Random, events: int) -> list[dict]:
    """Members and rebalances of two groups in any order of steps, also orders that no coordinator
    would write. Some events have the same time."""
    life, now_ms = [], 0
    members: dict[str, list[str]] = {"g": ["m"], "h": ["m"]}
    for seq in range(1, events + 1):
        now_ms += random.choice((0, 1, 1000))
        group = random.choice("gh")
        member = random.choice(members[group])
        match random.randrange(9):
            case 0:
                members[group].append(f"m{seq}")
                name = random.choice((None, "static"))
                life.append(joined(seq, group, f"m{seq}", group_instance_id=name, ts_ms=now_ms))
            case 1:
                left = core.MemberLeave(group_id=group, member_id=member)
                life.append(at(seq, left, now_ms))
            case 2 | 3:
                start = core.RebalanceStart(group_id=group, reason="member_join", member_id=member)
                life.append(at(seq, start, now_ms))
            case 4 | 5:
                life.append(ended(seq, group, random.randrange(2), 5, ts_ms=now_ms))
            case 6:
                held = {*random.choices(members[group], k=2)}
                life.append(assigned(seq, group, *sorted(held), ts_ms=now_ms))
            case 7 if random.random() < 0.2:
                life.append(loaded(seq, 1) | {"ts_ms": now_ms})
            case _:
                moved = core.PartitionsMoved(
                    group_id=group,
                    member_id=member,
                    reason=random.choice(("target_assignment", "left")),
                    gained_partitions={"orders": [random.randrange(3)]},
                )
                life.append(at(seq, moved, now_ms))
    return life


@pytest.mark.parametrize("seed", [1, 2])
def test_a_day_whose_end_is_computed_again_is_the_day_made_at_once(
    spark, tmp_path, monkeypatch, seed
):
    tails = []

    def told(*tables):
        tails.append(tail(*tables))
        return tails[-1]

    monkeypatch.setattr(compute, "tail", told)
    at_once, growing = a_site(spark, tmp_path / "at-once"), a_site(spark, tmp_path / "growing")
    files = at_once.seal(a_life(Random(seed), 60), segment_events=15)
    for file in files:
        target = growing.log_dir / file.relative_to(at_once.log_dir)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(file, target)
        growing.run()
    at_once.run()
    assert differences(growing, at_once) == []
    assert len(tails) == len(files) - 1
    assert any(tails), "every day was computed as a whole"


# --- which events and rows are in the tail --------------------------------------------------------

START, END, ASSIGNED = "rebalance_start", "rebalance_end", "assignment"


def events(*rows: tuple[str, int, str]) -> pa.Table:
    """Rows of (group, seq, kind), each at its seq's time."""
    groups, seqs, kinds = zip(*rows, strict=True)
    size = len(rows)
    return pa.table(
        {
            "store": ["s"] * size,
            "group": pa.array(groups, pa.string()),
            "lease_epoch": [1] * size,
            "seq": seqs,
            "kind": kinds,
            "ts_ms": seqs,
            "instance_id": pa.array([None] * size, pa.string()),
        }
    )


def at_times(table: pa.Table, *ts_ms: int) -> pa.Table:
    return table.set_column(table.schema.names.index("ts_ms"), "ts_ms", pa.array(ts_ms))


def rows(*of: tuple[str, int | None, int | None, int | None]) -> pa.Table:
    """Rows of (group, seq of the start, completed_ms, assigned_ms)."""
    names = ("group", "seq", "completed_ms", "assigned_ms")
    columns = dict(zip(names, map(list, zip(*of, strict=True)), strict=True))
    return pa.table({"store": ["s"] * len(of), **columns})


KNOWN = events(
    ("g", 1, END), ("g", 2, START), ("g", 3, END), ("h", 4, START), ("g", 5, START), ("g", 6, END),
    ("g", 7, END),
)  # fmt: skip
ROWS = rows(
    ("g", None, 1, None), ("g", 2, 3, None), ("h", 4, None, None), ("g", 5, 6, None),
    ("g", None, 7, None),
)  # fmt: skip


def test_the_tail_begins_with_the_last_start_of_each_group_with_new_events():
    found = tail(KNOWN, events(("g", 8, ASSIGNED)), ROWS)
    assert found is not None
    assert found.steps["seq"].to_pylist() == [5, 6, 7, 8]
    assert found.told["seq"].to_pylist() == [8]
    kept = zip(found.kept["seq"].to_pylist(), found.kept["completed_ms"].to_pylist(), strict=True)
    assert list(kept) == [(None, 1), (2, 3), (4, None)]


def test_a_group_without_a_start_is_computed_as_a_whole():
    found = tail(events(("g", 1, END)), events(("g", 2, END)), rows(("g", None, 1, None)))
    assert found is not None
    assert found.steps["seq"].to_pylist() == [1, 2]
    assert found.kept.num_rows == 0


def test_a_day_without_rebalances_has_no_rows_to_keep():
    found = tail(events(("g", 1, "member_join")), events(("g", 2, START)), ROWS.slice(0, 0))
    assert found is not None
    assert found.steps["seq"].to_pylist() == [1, 2]
    assert found.kept.num_rows == 0


def test_events_of_no_group_leave_all_rows():
    found = tail(KNOWN, events((None, 1, "shard_loaded")), ROWS)
    assert found is not None
    assert (found.steps.num_rows, found.told.num_rows) == (0, 0)
    assert found.kept == ROWS


AMBIGUOUS = {
    "a late event": (KNOWN, events(("g", 7, START))),
    "an earlier end at the time of a later one": (
        at_times(KNOWN, 7, 2, 3, 4, 5, 6, 7),
        events(("g", 8, START)),
    ),
    "an earlier start of the same seq": (
        events(("g", 1, START), ("g", 1, START)).set_column(2, "lease_epoch", pa.array([1, 2])),
        events(("g", 8, START)).set_column(2, "lease_epoch", pa.array([2])),
    ),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_the_whole_day_is_computed_if_it_is_not_sure_what_changes(case):
    assert tail(*AMBIGUOUS[case], ROWS) is None
