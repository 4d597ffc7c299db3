"""The lazy heap: nothing is early, nothing is forgotten, nothing is hoarded
(docs/design.md#deadlines).
"""

from __future__ import annotations

import random

from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind, Deadlines


def a_deadline(name: str = "m") -> Deadline:
    return Deadline(DeadlineKind.SESSION, ("g", name))


def popped(deadlines: Deadlines, now_ms: int) -> list[str]:
    """Everything that is due, in the order in which it comes."""
    names = []
    while (deadline := deadlines.pop_due(now_ms)) is not None:
        assert deadline.at is None
        names.append(deadline.subject[1])
    return names


def test_nothing_is_due_where_nothing_was_armed():
    deadlines = Deadlines()
    assert deadlines.next_at() is None
    assert popped(deadlines, 10**9) == []


def test_deadline_is_due_at_its_instant_and_once():
    deadlines, one = Deadlines(), a_deadline()
    deadlines.arm(one, 100)
    assert deadlines.next_at() == 100
    assert popped(deadlines, 99) == []
    assert popped(deadlines, 100) == ["m"]
    assert popped(deadlines, 10**9) == []


def test_deadlines_come_in_order_of_time_and_equal_ones_as_they_were_armed():
    deadlines = Deadlines()
    for name, at in (("late", 300), ("a", 100), ("b", 100), ("middle", 200)):
        deadlines.arm(a_deadline(name), at)
    assert popped(deadlines, 1_000) == ["a", "b", "middle", "late"]


def test_a_session_comes_before_the_time_to_sync_that_ends_with_it_however_it_got_there():
    deadlines, moved = Deadlines(), a_deadline("moved")
    deadlines.arm(moved, 100)
    deadlines.arm(moved, 500)  # its entry stays at 100 until then
    deadlines.arm(Deadline(DeadlineKind.SYNC_PHASE, ("g", "phase")), 500)
    deadlines.arm(a_deadline("later"), 500)
    assert popped(deadlines, 499) == []
    assert popped(deadlines, 500) == ["later", "moved", "phase"]


def test_deadline_that_was_moved_later_is_not_due_at_its_first_instant():
    deadlines, one = Deadlines(), a_deadline()
    deadlines.arm(one, 100)
    deadlines.arm(one, 200)
    assert popped(deadlines, 199) == []
    assert deadlines.next_at() == 200
    assert popped(deadlines, 200) == ["m"]


def test_deadline_that_was_moved_earlier_is_due_then_and_only_then():
    deadlines, one = Deadlines(), a_deadline()
    deadlines.arm(one, 200)
    deadlines.arm(one, 100)
    assert deadlines.next_at() == 100
    assert popped(deadlines, 100) == ["m"]
    assert popped(deadlines, 1_000) == []


def test_cleared_deadline_does_not_happen_and_may_be_armed_again():
    deadlines, one = Deadlines(), a_deadline()
    deadlines.arm(one, 100)
    deadlines.clear(one)
    assert popped(deadlines, 100) == []
    deadlines.arm(one, 300)
    assert popped(deadlines, 299) == []
    assert popped(deadlines, 300) == ["m"]


def test_moving_a_deadline_later_ten_thousand_times_costs_no_entries():
    """A heartbeat is O(1) and leaves nothing behind."""
    deadlines, one = Deadlines(), a_deadline()
    for at in range(10_000):
        deadlines.arm(one, 1_000 + at)
    assert len(deadlines._heap) == 1


def test_storm_of_cleared_deadlines_leaves_no_hoard_and_loses_nothing():
    deadlines = Deadlines()
    kept = [a_deadline(f"kept-{n}") for n in range(10)]
    for n, deadline in enumerate(kept):
        deadlines.arm(deadline, 10**6 + n)
    most = 0
    for n in range(20_000):
        passing = a_deadline(f"passing-{n}")
        deadlines.arm(passing, 10**5 + n)
        deadlines.clear(passing)
        most = max(most, len(deadlines._heap))
    assert most == 1_024
    assert popped(deadlines, 10**7) == [deadline.subject[1] for deadline in kept]


def test_any_order_of_arming_moving_and_clearing_is_what_a_plain_table_says():
    """A storm large enough to make the heap tidy itself, held against a dict."""
    chance = random.Random(7)
    deadlines = Deadlines()
    all_of_them = [a_deadline(str(n)) for n in range(3_000)]
    expected: dict[str, int] = {}
    now = 0
    for _ in range(30_000):
        deadline = chance.choice(all_of_them)
        name = deadline.subject[1]
        match chance.randrange(6):
            case 0:
                deadlines.clear(deadline)
                expected.pop(name, None)
            case 1:
                now += chance.randrange(3)
                due = {n for n, at in expected.items() if at <= now}
                next_at = deadlines.next_at()
                assert not due or (next_at is not None and next_at <= now)
                assert set(popped(deadlines, now)) == due
                for n in due:
                    del expected[n]
            case _:
                at = now + 1 + chance.randrange(5_000)
                deadlines.arm(deadline, at)
                expected[name] = at
    assert set(popped(deadlines, now + 10_000)) == set(expected)


def test_sessions_are_looked_at_on_a_grid_and_nothing_else_is():
    deadlines = Deadlines(session_grid_ms=1_000)
    session, phase = a_deadline("m"), Deadline(DeadlineKind.JOIN_PHASE, ("g", ""))
    deadlines.arm(session, 1_300)
    deadlines.arm(phase, 1_400)
    assert deadlines.next_at() == 1_400
    assert deadlines.pop_due(1_400) is phase
    assert deadlines.next_at() == 2_000
    deadlines.arm(session, 1_900)
    assert len(deadlines._heap) == 1
    assert deadlines.pop_due(1_999) is None
    deadlines.arm(session, 2_100)
    assert deadlines.pop_due(2_000) is None
    assert deadlines.next_at() == 3_000
    assert deadlines.pop_due(3_000) is session
