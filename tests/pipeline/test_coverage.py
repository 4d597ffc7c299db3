"""What is missing of a log, what came twice, and which logs are one store's."""

from __future__ import annotations

from datetime import date

from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.log.gaps import IN_NO_SNAPSHOT, Gap
from groupkeeper.pipeline.log.held_segment import HeldSegment

ONE, TWO, THREE = date(2026, 11, 1), date(2026, 11, 2), date(2026, 11, 3)


def held(first: int, last: int, dt: date = ONE, log_id: str = "a", **changes) -> HeldSegment:
    """A segment, whole unless told."""
    whole = {"events": last - first + 1, "seq_sum": sum(range(first, last + 1))}
    name = f"events-{log_id}-{first}-{last}.jsonl.gz"
    return HeldSegment(log_id, name, dt, first, last, **{**whole, **changes})


def test_segments_that_follow_each_other_have_no_gap():
    assert Coverage([held(6, 9, TWO), held(1, 5)]).gaps() == []


def snapshot(through: int, dt: date = ONE, log_id: str = "a", groups: int = 3) -> HeldSegment:
    return held(through - groups + 1, through, dt, f"{log_id}.{through}")


def test_a_beginning_that_no_snapshot_stands_for_is_a_gap():
    (gap,) = Coverage([held(22, 47, TWO), held(48, 58, THREE)]).gaps()
    assert gap == Gap("a", 1, 21, TWO, TWO)


def test_what_went_by_retention_is_no_gap():
    assert Coverage([snapshot(500), held(501, 510, TWO)]).gaps() == []
    assert Coverage([snapshot(500)]).gaps() == []


def test_what_is_missing_behind_a_snapshot_is_a_gap():
    (gap,) = Coverage([snapshot(500), held(505, 510, TWO)]).gaps()
    assert (gap.first_seq, gap.last_seq) == (501, 504)


def test_days_that_went_before_they_were_read_are_a_gap_though_a_snapshot_tells_their_offsets():
    parts = [held(1, 20), snapshot(60, TWO)]
    assert [(g.first_seq, g.last_seq) for g in Coverage(parts).gaps()] == [(21, 60)]
    parts += [held(61, 70, THREE)]
    assert [(g.first_seq, g.last_seq) for g in Coverage(parts).gaps()] == [(21, 60)]
    assert Coverage(parts).gaps_as_of({"a": 70, "a.60": 60}) == []
    assert len(Coverage(parts).gaps_as_of({"a": 20})) == 1
    assert Coverage(parts).gaps_as_of({"a": 19}) == []


def test_a_log_after_one_that_went_by_retention_has_its_beginning():
    assert Coverage([snapshot(60), held(61, 70, TWO, log_id="b")]).gaps() == []
    later = [held(1, 60), held(61, 100, log_id="b"), snapshot(100, log_id="b", groups=50)]
    assert set(Coverage(later).stores().values()) == {"a"}
    assert Coverage(later).gaps() == []


def test_a_store_with_a_snapshot_is_not_taken_for_what_follows_another():
    coverage = Coverage([held(1, 50, log_id="x"), snapshot(100), held(101, 120)])
    assert coverage.stores() == {"x": "x", "a": "a", "a.100": "a"}
    assert coverage.gaps() == []


def test_of_two_stores_that_lie_side_by_side_the_one_without_a_beginning_is_told():
    (gap,) = Coverage([held(1, 99, log_id="x"), held(22, 58)]).gaps()
    assert (gap.log_id, gap.first_seq, gap.last_seq) == ("a", 1, 21)


def test_for_a_moment_only_what_may_have_been_before_it_is_missing():
    coverage = Coverage([held(1, 3), held(59, 70)])
    assert coverage.gaps_as_of({"a": 2}) == []
    assert [(g.first_seq, g.last_seq) for g in coverage.gaps_as_of({"a": 3})] == [(4, 58)]
    assert [(g.first_seq, g.last_seq) for g in coverage.gaps_as_of({"a": 65})] == [(4, 58)]


def test_a_missing_beginning_matters_to_every_moment_that_no_snapshot_was_before():
    bare = Coverage([held(22, 58)])
    for seen in ({}, {"a": 30}):
        assert [(g.first_seq, g.last_seq) for g in bare.gaps_as_of(seen)] == [(1, 21)]
    going = Coverage([held(22, 58), snapshot(58)])  # retention has begun to remove them
    assert [(g.first_seq, g.last_seq) for g in going.gaps_as_of({"a": 30})] == [(1, 21)]
    assert going.gaps_as_of({"a": 58, "a.58": 58}) == []


def test_before_the_horizon_nothing_is_known_and_nothing_missing():
    assert Coverage([snapshot(500), held(501, 510, TWO)]).gaps_as_of({}) == []


def test_a_gap_may_belong_to_every_day_between_its_ends():
    (gap,) = Coverage([held(1, 5), held(8, 9, THREE)]).gaps()
    assert gap == Gap("a", 6, 7, ONE, THREE)
    assert [day for day in (date(2026, 10, 31), ONE, TWO, THREE) if gap.touches(day)] == [
        ONE,
        TWO,
        THREE,
    ]
    assert gap.days_text == "2026-11-01 to 2026-11-03"
    assert str(gap) == "events 6 to 7 of log a are missing"


def test_an_event_that_is_missing_within_a_segment_is_a_gap():
    (gap,) = Coverage([held(1, 5, events=4, seq_sum=12)]).gaps()
    assert gap.from_day == gap.to_day == ONE


def test_a_segment_within_another_is_an_overlap_and_no_gap():
    coverage = Coverage([held(1, 9), held(3, 5), held(10, 12)])
    assert coverage.gaps() == []
    assert coverage.has_overlaps([ONE])
    assert not coverage.has_overlaps([TWO])


def test_the_same_segment_in_two_batches_is_an_overlap():
    assert Coverage([held(1, 9, batch_id="0"), held(1, 9, batch_id="4")]).has_overlaps([ONE])


def test_events_that_came_twice_within_a_segment_are_an_overlap():
    assert Coverage([held(1, 3, events=4, seq_sum=8)]).has_overlaps([ONE])


def test_a_log_that_goes_on_counting_belongs_to_the_store_before_it():
    stores = Coverage([held(1, 5, log_id="a"), held(6, 9, log_id="b"), held(10, 11, log_id="c")])
    assert stores.stores() == {"a": "a", "b": "a", "c": "a"}


def test_logs_that_begin_with_one_are_stores_of_their_own():
    stores = Coverage([held(1, 5, log_id="a"), held(1, 9, log_id="b")]).stores()
    assert stores == {"a": "a", "b": "b"}


def test_a_log_continues_the_one_that_ends_just_before_it():
    logs = [held(1, 5, log_id="a"), held(1, 9, log_id="b"), held(6, 8, log_id="c")]
    assert Coverage(logs).stores()["c"] == "a"


def test_what_is_missing_between_two_logs_of_a_store_is_a_gap():
    (gap,) = Coverage([held(1, 5, log_id="a"), held(8, 9, TWO, log_id="b")]).gaps()
    assert (gap.first_seq, gap.last_seq, gap.from_day, gap.to_day) == (6, 7, ONE, TWO)


def test_a_snapshot_stands_before_the_log_that_it_was_taken_from():
    coverage = Coverage([held(98, 100, log_id="a.100"), held(101, 120, TWO, log_id="a")])
    assert len(set(coverage.stores().values())) == 1
    assert coverage.gaps() == []


def test_a_log_that_begins_in_the_middle_of_another_is_told_with_what_it_may_be():
    coverage = Coverage([held(1, 100, log_id="a"), held(61, 90, TWO, log_id="b")])
    (gap,) = coverage.gaps()
    assert (gap.log_id, gap.first_seq, gap.last_seq, gap.in_log) == ("b", 1, 60, "a")
    assert str(gap) == (
        "events 1 to 60 of log b are missing (or in log a, if an older copy of its store was put "
        "in its place and wrote b: the daemon's own file knows)"
    )
    assert coverage.gaps_as_of({"a": 100, "b": 61}) == [gap]
    (gap,) = Coverage([held(61, 90, log_id="b"), held(95, 99, log_id="c")]).gaps()[:1]
    assert gap.in_log == ""


def test_a_snapshot_of_what_is_held_anyway_does_not_change_its_day():
    """Retention leaves one each day, of a day that was read a month ago."""
    days = [held(1, 60), held(61, 100, TWO), held(101, 140, THREE)]
    before = Coverage(days)
    daily = Coverage([*days, snapshot(60), snapshot(100, TWO)])
    for day in (ONE, TWO, THREE):
        assert daily.fingerprint(day) == before.fingerprint(day)


def test_a_snapshot_of_what_is_not_held_changes_its_day():
    for lacking in ([held(101, 140, THREE)], [held(1, 60), held(101, 140, THREE)], [held(1, 60)]):
        before, after = Coverage(lacking), Coverage([*lacking, snapshot(100, TWO)])
        assert before.fingerprint(TWO) != after.fingerprint(TWO)
    known = [snapshot(60), held(61, 100, TWO), held(101, 140, THREE)]
    later = Coverage([*known, snapshot(100, TWO)])
    assert Coverage(known).fingerprint(TWO) == later.fingerprint(TWO)
    assert Coverage([held(61, 100, TWO)]).fingerprint(ONE) != later.fingerprint(ONE)


def test_a_days_fingerprint_changes_with_its_own_segments_alone():
    before = Coverage([held(1, 5), held(6, 9, TWO)])
    after = Coverage([held(1, 5), held(6, 9, TWO), held(10, 12, TWO)])
    assert before.fingerprint(ONE) == after.fingerprint(ONE)
    assert before.fingerprint(TWO) != after.fingerprint(TWO)


def expected(first: int, last: int, dt: date = ONE, **changes) -> HeldSegment:
    """A segment that ought to be there."""
    return held(first, last, dt, events=0, seq_sum=0, **{"problem": f"file {first}", **changes})


def test_a_segment_that_ought_to_be_there_is_a_gap_of_its_own_day_even_at_the_end():
    (gap,) = Coverage([held(1, 5), expected(6, 9, TWO)]).gaps()
    assert gap == Gap("a", 6, 9, TWO, TWO, problems=("file 6",))
    assert str(gap) == "events 6 to 9 of log a are missing (file 6)"
    (gap,) = Coverage([held(1, 5), expected(6, 9, TWO), held(10, 12, THREE)]).gaps()
    assert (gap.from_day, gap.to_day) == (TWO, TWO)


def test_segments_that_ought_to_be_there_and_adjoin_are_one_gap():
    parts = [held(1, 5), *(expected(n, n, TWO) for n in range(6, 11)), held(11, 12, THREE)]
    (gap,) = Coverage(parts).gaps()
    assert str(gap) == (
        "events 6 to 10 of log a are missing (file 6; file 7; file 8; and 2 files more)"
    )


def test_of_a_segment_that_ought_to_be_there_only_what_no_other_holds_is_missing():
    assert Coverage([held(1, 9), expected(3, 5)]).gaps() == []
    assert Coverage([held(1, 4), held(5, 9), expected(3, 7)]).gaps() == []
    (gap,) = Coverage([held(1, 6), expected(5, 10)]).gaps()
    assert (gap.first_seq, gap.last_seq) == (7, 10)
    between = Coverage([held(1, 2), expected(2, 9), held(4, 6), held(8, 12)]).gaps()
    assert [(gap.first_seq, gap.last_seq) for gap in between] == [(3, 3), (7, 7)]
    assert not Coverage([held(1, 2), expected(3, 3)]).has_overlaps([ONE])


def test_what_is_missing_beside_a_segment_that_ought_to_be_there_is_told_too():
    gaps = Coverage([held(1, 5), expected(8, 9, TWO)]).gaps()
    assert [(g.first_seq, g.last_seq, g.from_day, g.to_day) for g in gaps] == [
        (6, 7, ONE, TWO),
        (8, 9, TWO, TWO),
    ]


def test_a_log_of_which_nothing_is_held_has_its_gap_and_its_store():
    coverage = Coverage([held(1, 5), held(6, 9, TWO, "b", events=0, seq_sum=0)])
    assert coverage.stores()["b"] == "a"
    assert [(gap.log_id, gap.from_day) for gap in coverage.gaps()] == [("b", TWO)]
    assert coverage.days() == [ONE, TWO]


def test_what_retention_took_is_not_expected():
    assert Coverage([snapshot(60), expected(41, 60), held(61, 70, TWO)]).gaps() == []


def test_a_file_with_other_content_changes_its_day():
    first, second = (Coverage([held(1, 5, sha256=sha)]) for sha in ("00", "ff"))
    assert first.fingerprint(ONE) != second.fingerprint(ONE)


def test_a_file_that_ought_to_be_there_is_nothing_that_its_day_was_computed_from():
    """It is read already, and was damaged since."""
    before, after = Coverage([held(1, 5)]), Coverage([held(1, 5), expected(1, 5)])
    assert before.fingerprint(ONE) == after.fingerprint(ONE)


def test_what_two_segments_ought_to_hold_is_missing_once():
    (gap,) = Coverage([held(1, 2), expected(3, 6), expected(5, 8, TWO)]).gaps()
    assert (gap.first_seq, gap.last_seq, gap.from_day, gap.to_day) == (3, 8, ONE, TWO)
    (gap,) = Coverage([held(1, 2), expected(3, 9), expected(5, 6, TWO)]).gaps()
    assert (gap.first_seq, gap.last_seq) == (3, 9)


LOST = f"f was damaged when its day went, and {IN_NO_SNAPSHOT}"


def test_what_retention_could_not_read_is_missing_though_a_snapshot_stands_behind_it():
    parts = [snapshot(60), expected(41, 50, problem=LOST), held(61, 70, TWO)]
    (gap,) = Coverage(parts).gaps()
    assert (gap.first_seq, gap.last_seq, gap.problems) == (41, 50, (LOST,))
    (alone,) = Coverage(parts[:2]).gaps()
    assert alone == gap
    assert Coverage(parts).gaps_as_of({"a.60": 60, "a": 65}) == [gap]
    beside = [held(1, 40), *parts, held(51, 60)]
    assert Coverage(beside).gaps() == [gap]
    assert Coverage([*beside, held(41, 50)]).gaps() == []


def test_logs_of_two_stores_in_one_folder_are_told_apart_by_what_they_begin_with():
    """Both stores had gone as far when they were started again."""
    parts = [
        held(1, 50, log_id="a"),
        held(1, 50, log_id="b"),
        held(51, 60, TWO, "c", previous_log_id="b"),
        held(51, 70, TWO, "d", previous_log_id="a"),
    ]
    stores = Coverage(parts).stores()
    assert (stores["c"], stores["d"]) == ("b", "a")
    assert Coverage(parts).gaps() == []


def test_a_log_continues_one_of_its_own_store_though_another_ends_just_before_it():
    """The log between is gone with its file, and so is what it began with."""
    parts = [
        held(1, 20, store="a"),
        held(1, 50, log_id="x", store="x"),
        held(51, 60, TWO, log_id="c", store="a"),
    ]
    coverage = Coverage(parts)
    assert coverage.stores() == {"a": "a", "c": "a", "x": "x"}
    assert [(g.log_id, g.first_seq, g.last_seq) for g in coverage.gaps()] == [("c", 21, 50)]
    unnamed = Coverage([each._replace(store="") for each in parts])
    assert unnamed.stores() == {"a": "a", "c": "x", "x": "x"}, "by their numbers alone"


def test_a_log_without_a_name_may_be_before_one_that_has_a_name():
    parts = [held(1, 20), held(21, 30, TWO, log_id="b", store="b")]
    assert Coverage(parts).stores() == {"a": "a", "b": "a"}


def test_a_named_store_of_which_nothing_before_is_there_lacks_its_beginning():
    parts = [held(1, 50, log_id="x", store="x"), held(51, 60, TWO, log_id="b", store="a")]
    coverage = Coverage(parts)
    assert coverage.stores() == {"b": "b", "x": "x"}
    (gap,) = coverage.gaps()
    assert (gap.log_id, gap.first_seq, gap.last_seq, gap.in_log) == ("b", 1, 50, "")


def test_a_log_that_names_the_one_before_it_continues_it_whatever_the_store_is_called():
    """An older version ran in between, which did not know the name."""
    parts = [
        held(1, 20, store="a"),
        held(21, 30, log_id="b", store="a.1", previous_log_id="a", began_ms=5),
    ]
    assert set(Coverage(parts).stores().values()) == {"a"}


def test_a_log_whose_end_was_cut_off_has_a_gap_before_the_one_that_names_it():
    parts = [held(1, 40), held(51, 60, TWO, "b", previous_log_id="a")]
    (gap,) = Coverage(parts).gaps()
    assert (gap.first_seq, gap.last_seq) == (41, 50)


def test_a_log_in_the_middle_of_the_one_it_names_goes_on_from_there():
    """An older copy of the store was put in its place."""
    before = Coverage([held(1, 100)])
    coverage = Coverage([held(1, 100), begun(51, 60, "b", "a", began_ms=9)])
    assert coverage.stores() == {"a": "a", "b": "a"}
    assert coverage.gaps() == []
    assert coverage.gaps_as_of({"a": 50, "b": 60}) == []
    assert coverage.limits() == {"a": 50}
    assert coverage.fingerprint(ONE) != before.fingerprint(ONE)
    (put_back,) = coverage.put_backs()
    assert str(put_back) == (
        "the store was put back to event 50 of log a, and log b continues from there: events 51 to "
        "100 of log a no longer count"
    )


def begun(first: int, last: int, log_id: str, previous: str, began_ms: int = 1) -> HeldSegment:
    """The first segment of a log that names the one before it."""
    return held(first, last, TWO, log_id, previous_log_id=previous, began_ms=began_ms)


def test_a_start_that_goes_on_from_the_end_of_a_log_puts_nothing_back():
    coverage = Coverage([held(1, 50), begun(51, 60, "b", "a"), begun(61, 90, "c", "b")])
    assert (coverage.limits(), coverage.put_backs()) == ({}, [])


def test_of_two_logs_that_name_the_same_the_one_that_began_later_counts():
    for earlier, later in (("b", "c"), ("c", "b")):
        parts = [
            held(1, 50),
            begun(51, 80, earlier, "a", began_ms=5),
            begun(51, 60, later, "a", began_ms=9),
        ]
        coverage = Coverage(parts)
        assert coverage.gaps() == []
        assert coverage.limits() == {earlier: 0}
        (put_back,) = coverage.put_backs()
        assert put_back.abandoned == ((earlier, 51, 80),)


def test_a_branch_that_a_later_copy_brings_back_counts_again():
    parts = [
        held(1, 50),
        begun(51, 80, "b", "a", began_ms=5),
        begun(31, 60, "c", "a", began_ms=7),
        begun(71, 90, "d", "b", began_ms=9),
    ]
    assert Coverage(parts).gaps() == []
    assert Coverage(parts).limits() == {"b": 70, "c": 0}
    assert [each.log_id for each in Coverage(parts).put_backs()] == ["b", "d"]


def test_a_clock_that_was_set_back_abandons_nothing():
    parts = [held(1, 50), begun(51, 80, "b", "a", began_ms=9), begun(81, 90, "c", "b", began_ms=5)]
    assert Coverage(parts).limits() == {}


def test_a_log_without_a_beginning_goes_on_in_the_branch_that_it_continues():
    """A daemon of 0.1.0 was started again."""
    parts = [
        held(1, 50),
        begun(51, 80, "b", "a", began_ms=5),
        begun(51, 60, "c", "a", began_ms=7),
        held(61, 70, THREE, "d"),
    ]
    assert Coverage(parts).limits() == {"b": 0}


def test_a_snapshot_of_what_was_abandoned_stands_for_nothing():
    going = snapshot(90, groups=60)
    parts = [held(1, 50), going, held(91, 100), begun(51, 60, "b", "a"), snapshot(40)]
    coverage = Coverage(parts)
    assert coverage.limits() == {"a": 50, "a.90": 0}
    assert coverage.gaps() == []
    assert [g.last_seq for g in Coverage([going, begun(51, 60, "b", "a")]).gaps()] == [50]


def test_what_is_missing_of_an_abandoned_branch_is_no_gap():
    parts = [held(1, 70), expected(91, 100), begun(51, 60, "b", "a")]
    assert Coverage(parts).gaps() == []
    assert Coverage([held(1, 70), held(91, 100)]).gaps() != []


def test_what_is_missing_before_the_fork_is_a_gap_still():
    (gap,) = Coverage([held(1, 30), held(61, 100), begun(51, 60, "b", "a")]).gaps()
    assert (gap.first_seq, gap.last_seq) == (31, 50)
    (gap,) = Coverage([held(61, 100), begun(51, 55, "b", "a")]).gaps()
    assert (gap.first_seq, gap.last_seq) == (1, 50)


def test_logs_that_name_each_other_are_read_all_the_same():
    parts = [begun(51, 60, "a", "b"), begun(51, 80, "b", "a"), begun(7, 9, "c", "c")]
    assert Coverage(parts).stores()["c"] == "c"
    assert Coverage(parts).gaps()


def test_the_events_of_a_day_are_counted_once():
    parts = [held(1, 10), held(5, 12), held(5, 12, file="late/copy"), held(13, 20, TWO)]
    assert Coverage(parts).events(ONE) == 12
    assert Coverage([*parts, held(1, 10, log_id="b")]).events(ONE) == 22
    assert Coverage([expected(1, 10), held(11, 20)]).events(ONE) == 10


def test_events_that_a_replaced_store_wrote_do_not_count():
    parts = [held(1, 10), held(6, 8, log_id="b", previous_log_id="a", began_ms=5)]
    assert Coverage(parts).events(ONE) == 5 + 3


def test_a_gap_names_every_file_that_should_have_its_events():
    parts = [held(1, 5), expected(6, 9), expected(6, 9, problem="copy"), expected(10, 12)]
    (gap,) = Coverage(parts).gaps()
    assert sorted(gap.problems) == ["copy", "file 10", "file 6"]


NODES = [
    held(1, 5, log_id="a", store="a/1"),
    held(1, 9, log_id="b", store="a/2"),
    held(6, 8, TWO, log_id="c", store="a/1"),
    held(10, 12, TWO, log_id="d", store="a/10"),
]


def test_the_nodes_of_one_store_are_one_store_whose_chains_have_gaps_of_their_own():
    coverage = Coverage(NODES)
    assert set(coverage.stores().values()) == {"a"}
    assert coverage.chains() == {"a": "a", "b": "b", "c": "a", "d": "d"}
    assert coverage.several_nodes()
    assert [(g.log_id, g.first_seq, g.last_seq) for g in coverage.gaps()] == [("d", 1, 9)]
    assert not Coverage([NODES[0], NODES[2]]).several_nodes()


SHARDS = [
    held(1, 5, log_id="x", store="s/shard-3"),
    held(6, 8, TWO, log_id="y", store="s/shard-3", previous_log_id="x"),
    held(2, 9, log_id="z", store="s/shard-cluster"),
    held(1, 2, TWO, log_id="w", store="s/shard-0"),
]


def test_the_shards_of_one_store_are_one_store_and_no_nodes():
    coverage = Coverage(SHARDS)
    assert set(coverage.stores().values()) == {"s"}
    assert coverage.chains() == {"x": "x", "y": "x", "z": "z", "w": "w"}
    assert not coverage.several_nodes()
    assert [(g.log_id, g.first_seq, g.last_seq) for g in coverage.gaps()] == [("z", 1, 1)]
    assert Coverage(SHARDS[:2]).stores() == {"x": "s", "y": "s"}


def test_shards_from_before_they_shared_a_name_join_the_store_with_their_first_new_log():
    old = [
        held(1, 5, log_id="x"),
        held(6, 8, log_id="y", store="x", previous_log_id="x"),
        held(1, 3, log_id="z"),
    ]
    assert Coverage(old).stores() == {"x": "x", "y": "x", "z": "z"}
    new = [
        held(9, 9, TWO, log_id="n", store="s/shard-3", previous_log_id="y"),
        held(4, 6, TWO, log_id="m", store="s/shard-4", previous_log_id="z"),
    ]
    coverage = Coverage([*old, *new])
    assert set(coverage.stores().values()) == {"s"}
    assert coverage.chains() == {"x": "x", "y": "x", "n": "x", "z": "z", "m": "z"}
    assert coverage.gaps() == []


def test_a_store_keeps_its_name_when_a_higher_node_comes_and_gets_that_of_a_lower_one():
    assert Coverage(NODES[1:2]).stores() == {"b": "b"}
    assert Coverage([NODES[1], NODES[3]]).stores() == {"b": "b", "d": "b"}
    assert Coverage(NODES[:2]).stores() == {"a": "a", "b": "a"}


def test_logs_from_before_nodes_shared_a_name_go_on_in_the_chain_of_their_node():
    parts = [
        held(1, 5, log_id="a", store="a"),
        held(1, 9, log_id="b", store="b"),
        held(6, 8, TWO, log_id="c", store="a/1", previous_log_id="a"),
        held(10, 12, TWO, log_id="d", store="a/2", previous_log_id="b"),
    ]
    coverage = Coverage(parts)
    assert coverage.chains() == {"a": "a", "b": "b", "c": "a", "d": "b"}
    assert set(coverage.stores().values()) == {"a"}
    assert coverage.gaps() == []
    assert Coverage(parts[:2]).stores() == {"a": "a", "b": "b"}, "nothing says that they are one"
