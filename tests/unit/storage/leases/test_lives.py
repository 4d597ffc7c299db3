"""When a life counts as dead, by the clock of whoever observes it."""

from __future__ import annotations

from groupkeeper.storage.leases.lives import LATE_LOOK_MS, LifeWatch, NodeLife, ReadTime

TTL_MS = 2_000


def a_life(counter: int, life_id: str = "a") -> NodeLife:
    return NodeLife(1, life_id, "host:7", counter)


def ended(watch: LifeWatch, counter: int, at_ms: int, took_ms: int = 0) -> bool:
    return bool(watch.look([a_life(counter)], at_ms, at_ms + took_ms))


def test_a_life_whose_counter_stands_still_for_a_ttl_is_ended() -> None:
    watch = LifeWatch(TTL_MS)
    looks = [ended(watch, 5, at_ms) for at_ms in range(0, TTL_MS + 1, 500)]
    assert looks == [False] * 4 + [True]


def test_a_counter_that_moves_starts_anew() -> None:
    watch = LifeWatch(TTL_MS)
    assert not any(ended(watch, at_ms // 1_900, at_ms) for at_ms in range(0, 60_000, 100))


def test_an_observer_that_was_stopped_gives_the_others_time() -> None:
    """The whole machine may have been paused, and the others with it."""
    watch = LifeWatch(TTL_MS)
    assert not ended(watch, 5, 0)
    assert [ended(watch, 5, 3_600_000 + ms) for ms in (0, 100, 200)] == [False] * 3


def test_two_looks_are_not_enough_however_long_they_are_apart() -> None:
    watch = LifeWatch(4)  # its beats are a millisecond apart
    assert not ended(watch, 5, 0)
    assert not ended(watch, 5, 60_000)


def test_the_first_look_counts_from_its_answer_and_the_last_one_until_it_was_sent() -> None:
    """The store read the counter at an unknown time between the two."""
    watch = LifeWatch(TTL_MS)
    assert not ended(watch, 5, 0, took_ms=300)
    assert not any(ended(watch, 5, at_ms, took_ms=90) for at_ms in range(400, 2_300, 100))
    assert ended(watch, 5, 2_300, took_ms=90)


def test_a_life_that_is_gone_is_forgotten() -> None:
    watch = LifeWatch(TTL_MS)
    for at_ms in range(0, 1_900, 100):
        assert not ended(watch, 5, at_ms)
    assert watch.look([a_life(5, "b")], 1_900, 1_900) == []
    assert not ended(watch, 5, 2_000)


def test_it_looks_more_often_while_a_beat_is_late() -> None:
    watch = LifeWatch(TTL_MS)
    ended(watch, 5, 0)
    assert watch.next_look_ms() == TTL_MS // 4
    ended(watch, 5, 500)
    assert watch.next_look_ms() == LATE_LOOK_MS
    ended(watch, 6, 600)
    assert watch.next_look_ms() == TTL_MS // 4


def test_reads_are_answered_until_nine_tenths_of_a_ttl_after_a_beat_was_sent() -> None:
    time = ReadTime(TTL_MS)
    assert time.left_ms(0) == 0, "before the first beat"
    time.beat_succeeded(sent_ms=1_000)
    assert [time.left_ms(at_ms) for at_ms in (1_000, 2_799, 2_800, 9_000)] == [1_800, 1, 0, 0]


def test_an_older_beat_does_not_shorten_the_time() -> None:
    time = ReadTime(TTL_MS)
    time.beat_succeeded(sent_ms=1_500)
    time.beat_succeeded(sent_ms=1_000)
    assert time.left_ms(2_000) == 1_300


def test_after_the_end_of_a_life_no_read_is_answered_before_the_next_beat() -> None:
    time = ReadTime(TTL_MS)
    time.beat_succeeded(sent_ms=1_000)
    time.life_ended()
    assert time.left_ms(1_001) == 0
    time.beat_succeeded(sent_ms=1_002)
    assert time.left_ms(1_002) == 1_800
