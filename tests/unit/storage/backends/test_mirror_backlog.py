"""The age of what the mirror does not show yet."""

from __future__ import annotations

from groupkeeper.storage.backends.mirror.backlog import MirrorBacklog


def test_the_lag_is_the_age_of_the_oldest_change_that_is_not_written() -> None:
    backlog = MirrorBacklog()
    assert (backlog.lag_s(5.0), bool(backlog)) == (0.0, False)
    backlog.changed("a", b"1", 10.0)
    backlog.changed("b", b"1", 12.0)
    backlog.changed("a", b"2", 13.0)
    assert (backlog.lag_s(15.0), bool(backlog)) == (5.0, True)
    assert [(name, backlog.take(name)) for name in backlog.waiting()] == [("a", b"2"), ("b", b"1")]
    backlog.changed("a", b"3", 16.0)
    assert backlog.lag_s(20.0) == 10.0
    backlog.written("a")
    assert backlog.lag_s(20.0) == 8.0
    backlog.written("b")
    assert (backlog.lag_s(20.0), bool(backlog)) == (4.0, True)
    assert backlog.take("a") == b"3"
    backlog.written("a")
    assert (backlog.lag_s(21.0), bool(backlog)) == (0.0, False)


def test_a_group_that_could_not_be_written_stays_as_old_as_its_first_change() -> None:
    backlog = MirrorBacklog()
    for now_s in (1.0, 2.0):
        backlog.changed("a", b"", now_s)
        backlog.take("a")
    assert backlog.unfinished() == ["a"]
    assert backlog.lag_s(3.0) == 2.0


def test_nodes_that_went_with_a_session_count_from_its_end() -> None:
    backlog = MirrorBacklog()
    backlog.changed("a", b"", 1.0)
    backlog.take("a")
    backlog.lost(["a", "b"], 4.0)
    assert backlog.unfinished() == ["a", "b"]
    assert backlog.lag_s(5.0) == 4.0
    backlog.written("a")
    assert backlog.lag_s(5.0) == 1.0
    backlog.clear()
    assert backlog.lag_s(5.0) == 0.0
