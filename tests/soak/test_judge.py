"""The judges of the soak, on histories made by hand: what is wrong is found, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.soak import judge
from tests.soak.judge import History
from tests.soak.ledger import Key, Ledger, Silence

SESSION_MS = 20_000
EVICTED_MS = 100_000
A0, A1 = Key("a", 0), Key("a", 1)


def a_ledger(*lines: list[Any], repeats: bool = False) -> Ledger:
    ledger = Ledger()
    for line in lines:
        ledger.enter("host", line, repeats=repeats)
    return ledger


def sends(offset: int, *partitions: int) -> list[Any]:
    return ["sends", 1, "m", "a", offset, list(partitions)]


def has(offset: int, *partitions: int) -> list[Any]:
    return ["has", 2, "m", "a", offset, list(partitions)]


def logged(*commits: tuple[Key, int]) -> History:
    return History(list(range(1, len(commits) + 1)), list(commits), [], [])


# --- a failed sync --------------------------------------------------------------------------------

GIVEN_UP = {"event": "store_given_up", "problem": "store.db: the disk failed to sync (EIO)"}


def test_a_daemon_whose_disk_failed_to_sync_says_so_once_and_exits_with_1():
    assert judge.given_up(1, [{"event": "append_failed"}, GIVEN_UP]) == []


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (0, [GIVEN_UP]),
        (1, []),
        (1, [GIVEN_UP, GIVEN_UP]),
        (1, [{"event": "store_given_up", "problem": "somebody else writes to the store"}]),
    ],
)
def test_any_other_end_after_a_failed_sync_is_found(code, lines):
    (finding,) = judge.given_up(code, lines)
    assert finding.startswith(f"after a failed sync the daemon exited with {code}, and said [")


# --- commits --------------------------------------------------------------------------------------


def test_an_offset_at_or_above_the_acknowledged_one_is_not_lost():
    assert judge.lost_offsets({A0: 7, A1: 8}, {A0: 7, A1: 9}) == []


@pytest.mark.parametrize("fetched", [{}, {A0: 6}])
def test_an_offset_below_the_acknowledged_one_is_lost(fetched):
    (finding,) = judge.lost_offsets({A0: 7}, fetched)
    assert "a-0 was acknowledged at 7" in finding


def test_the_largest_acknowledged_offset_of_a_partition_is_kept():
    ledger = a_ledger(sends(5, 0, 1), has(5, 0, 1), sends(7, 0), has(7, 0), sends(9, 0))
    assert ledger.largest == {A0: 7, A1: 5}
    assert ledger.commits == 2


def test_a_log_with_each_acknowledged_commit_once_is_right():
    ledger = a_ledger(sends(5, 0, 1), has(5, 0, 1), sends(7, 0))
    for history in (logged((A0, 5), (A1, 5)), logged((A0, 5), (A1, 5), (A0, 7))):
        fetched = dict(history.commits)
        assert judge.history_of_commits(ledger, history, fetched) == []


def test_an_acknowledged_commit_that_is_not_in_the_log_is_found():
    ledger = a_ledger(sends(5, 0), has(5, 0))
    (finding,) = judge.history_of_commits(ledger, logged(), {})
    assert finding == "not in the event log, though acknowledged: a-0 at 5"


def test_a_commit_that_is_in_the_log_twice_is_found_unless_its_library_repeats():
    history = logged((A0, 5), (A0, 5))
    lines = (sends(5, 0), has(5, 0))
    (finding,) = judge.history_of_commits(a_ledger(*lines), history, {A0: 5})
    assert finding == "2 times in the event log, sent once: a-0 at 5"
    repeating = a_ledger(*lines, repeats=True)
    assert judge.history_of_commits(repeating, history, {A0: 5}) == []
    assert judge.repeated(history) == 1


def test_a_commit_that_nobody_sent_is_found():
    (finding,) = judge.history_of_commits(a_ledger(), logged((A0, 5)), {A0: 5})
    assert finding == "in the event log, and nobody sent it: a-0 at 5"


@pytest.mark.parametrize("fetched", [{A0: 5}, {}, {A0: 7, A1: 3}])
def test_an_answer_that_is_not_the_end_of_the_log_is_found(fetched):
    ledger = a_ledger(sends(5, 0), sends(7, 0))
    (finding,) = judge.history_of_commits(ledger, logged((A0, 5), (A0, 7)), fetched)
    assert finding.startswith("the log ends with")


def test_a_gap_of_the_log_is_found():
    assert judge.gaps(History([1, 2, 3], [], [], [])) == []
    assert judge.gaps(History([1, 3, 4], [], [], [])) == ["the event log has 3 where 2 belongs"]
    assert judge.gaps(History([1, 1, 2], [], [], [])) == ["the event log has 1 where 2 belongs"]


def test_many_findings_of_a_kind_are_cut():
    found = judge.lost_offsets({Key("a", n): 1 for n in range(100)}, {})
    assert len(found) == judge.SHOWN + 1
    assert found[-1] == f"... and {100 - judge.SHOWN} more of these"


def test_events_are_taken_apart():
    events = [
        {
            "seq": 1,
            "kind": "commit",
            "group": "a",
            "topics": [{"topic": "orders", "partitions": [{"partition": 0, "offset": 5}]}],
        },
        {"seq": 2, "kind": "member_join", "group": "a"},
        {"seq": 3, "kind": "member_evicted", "group": "a", "member_id": "x"},
        {"seq": 4, "kind": "shard_loaded", "group": "", "ts_ms": 17},
    ]
    history = judge.history_of(events)
    assert history.seqs == [1, 2, 3, 4]
    assert history.loads_ms == [17]
    assert history.commits == [(A0, 5)]
    assert [event["member_id"] for event in history.evictions] == ["x"]


# --- evictions ------------------------------------------------------------------------------------


def evicted(
    *,
    pulses: list[int],
    until_ms: int | None = None,
    member_id: str = "x",
    silence: Silence | None = None,
    ended_ms: int | None = None,
    name: str = "raw-1",
    loads_ms: tuple[int, ...] = (),
) -> Any:
    """Judge the eviction of x, at EVICTED_MS, of a host with these pulses."""
    lines: list[list[Any]] = [["pulse", ms] for ms in pulses]
    lines.append(["is", 1, name, "x"])
    if until_ms is not None:
        lines.append(["is", until_ms, name, "y"])
    event = {
        "ts_ms": EVICTED_MS,
        "member_id": member_id,
        "group": "a",
        "reason": "session_timeout",
    }
    ledger = a_ledger(*lines)
    ledger.sessions_ms["host"] = SESSION_MS
    if silence is not None:
        ledger.silenced["host"] = [silence]
    return judge.evictions(ledger, History([], [], [event], list(loads_ms)), ended_ms)


STEADY = list(range(0, 200_000, 500))


def test_a_member_that_kept_heartbeating_is_evicted_unjustly():
    found = evicted(pulses=STEADY)
    assert (len(found.unjust), found.total) == (1, 1)
    assert "evicted though it kept heartbeating: raw-1 of a, session_timeout" in found.unjust[0]


def test_a_member_that_only_then_learns_of_it_is_evicted_unjustly():
    assert len(evicted(pulses=STEADY, until_ms=EVICTED_MS + 300).unjust) == 1


def test_a_stop_below_half_a_session_excuses_no_eviction():
    pulses = [ms for ms in STEADY if not 85_000 < ms < 94_000]
    assert len(evicted(pulses=pulses).unjust) == 1


@pytest.mark.parametrize(
    "pulses",
    [
        [ms for ms in STEADY if ms < EVICTED_MS - SESSION_MS],  # killed
        [ms for ms in STEADY if not 79_000 < ms < 101_000],  # stopped, and woken since
        [],  # killed before its first
    ],
)
def test_a_silent_process_is_evicted_with_reason(pulses):
    host_is_known = pulses or [0]
    found = evicted(pulses=host_is_known)
    assert (found.starved, found.total) == (1, 1)
    found = evicted(pulses=host_is_known, silence=Silence(85_000, 101_000))
    assert (found.silenced, found.total) == (1, 1)
    found = evicted(pulses=host_is_known, silence=Silence(1_000, 7_000))
    assert (found.starved, found.total) == (1, 1)
    found = evicted(pulses=host_is_known, silence=Silence(1_000))
    assert (found.silenced, found.total) == (1, 1)


def test_who_is_evicted_after_the_clients_were_told_to_end_is_not_judged():
    assert evicted(pulses=STEADY, ended_ms=EVICTED_MS - 1).total == 0


def test_a_library_that_is_not_back_a_session_after_a_load_is_late_and_a_raw_member_is_not():
    loads_ms = (40_000, EVICTED_MS - SESSION_MS - 200, EVICTED_MS + 5_000)
    late = evicted(pulses=STEADY, name="aiokafka-1", loads_ms=loads_ms)
    assert (late.late, late.total) == (1, 1)
    assert len(evicted(pulses=STEADY, name="raw-1", loads_ms=loads_ms).unjust) == 1


def test_a_library_that_is_evicted_long_after_a_load_is_evicted_unjustly():
    loads_ms = (40_000, EVICTED_MS + 5_000)
    assert len(evicted(pulses=STEADY, name="aiokafka-1", loads_ms=loads_ms).unjust) == 1


def test_an_id_that_its_member_has_left_behind_is_evicted_with_reason():
    found = evicted(pulses=STEADY, until_ms=EVICTED_MS - SESSION_MS)
    assert (found.left_behind, found.total) == (1, 1)


def test_an_id_that_nobody_learned_of_is_evicted_with_reason():
    found = evicted(pulses=STEADY, member_id="handed out")
    assert (found.left_behind, found.total) == (1, 1)


def test_a_name_that_plays_again_in_another_process_leaves_the_old_id_to_the_old_process():
    ledger = Ledger()
    ledger.enter("host.1", ["is", 1, "m", "x"])
    ledger.enter("host.2", ["is", 9, "m", "y"])
    assert ledger.holdings["x"].until_ms is None
    ledger.enter("host.2", ["is", 11, "m", ""])
    assert ledger.holdings["y"].until_ms == 11


def test_a_consumer_that_was_replaced_leaves_its_id_behind():
    ledger = a_ledger(["is", 1, "raw-1", "x"], ["anew", 5, "raw-1", "stuck"])
    assert ledger.holdings["x"].until_ms == 5
    assert ledger.anew == {"raw stuck": 1}


# --- the process ----------------------------------------------------------------------------------


def test_memory_that_stays_is_right():
    assert judge.memory([80, 85, 90, 88, 91, 90, 89, 92, 90]) == []
    assert judge.memory([80, 500]) == []  # too few lives to tell


def test_memory_that_grows_from_life_to_life_is_found():
    (finding,) = judge.memory([80, 90, 100, 120, 150, 180, 200, 220, 240])
    assert finding == "memory grew: 90 MB in the first lives, 220 MB in the last"


def test_a_slow_callback_is_found_in_the_log():
    lines = [
        {"level": "info", "event": "ready"},
        {"level": "warning", "event": "slow", "callback": "Lane._write", "cpu_ms": 140},
    ]
    assert judge.slow_callbacks(lines) == ["a callback burned 140 ms: Lane._write"]
    assert judge.slow_callbacks(lines[:1]) == []


def test_errors_that_the_faults_explain_are_none():
    explained = [{"level": "error", "event": event} for event in judge.STORE_IS_AWAY]
    assert judge.bugs(explained) == []
    assert len(judge.bugs([*explained, {"level": "error", "event": "bug"}])) == 1


def test_a_fault_without_effect_is_found():
    assert judge.without_effect(["a", "b"], {"a", "b", "c"}) == []
    assert judge.without_effect(["a", "b"], {"a"}) == ["the fault had no effect: b"]


# --- whether it shows anything --------------------------------------------------------------------


def test_a_run_in_which_every_kind_and_most_groups_committed_shows_something():
    ledger = a_ledger(["has", 1, "raw-1", "a", 5, [0]], ["has", 2, "kafka-python-2", "b", 6, [0]])
    assert ledger.commits == 2
    assert judge.without_commits(ledger, {"raw", "kafka-python"}, 3) == []


def test_a_run_in_which_nothing_was_acknowledged_shows_nothing():
    ledger = a_ledger(["sends", 1, "raw-1", "a", 5, [0]])
    assert judge.without_commits(ledger, {"raw"}, 1) == [
        "no commit of raw was acknowledged: this run shows nothing",
        "commits of 0 groups of 1 were acknowledged: this run shows nothing",
    ]


def test_a_kind_of_client_whose_commits_are_never_acknowledged_is_found():
    ledger = a_ledger(["has", 1, "raw-1", "a", 5, [0]])
    (finding,) = judge.without_commits(ledger, {"raw", "kafka-python"}, 1)
    assert finding == "no commit of kafka-python was acknowledged: this run shows nothing"


def test_half_of_the_groups_are_not_most_of_them():
    ledger = a_ledger(["has", 1, "raw-1", "a", 5, [0, 1]])
    (finding,) = judge.without_commits(ledger, {"raw"}, 2)
    assert finding == "commits of 1 groups of 2 were acknowledged: this run shows nothing"


def test_all_groups_stable_with_all_living_members_are_at_rest():
    assert judge.unrest(4, 4, 16, 16) == []
    assert judge.unrest(4, 4, 17, 16) == []  # an id that was left behind


@pytest.mark.parametrize(("stable", "joined"), [(3, 16), (4, 15), (0, 0)])
def test_a_group_or_a_member_that_does_not_come_back_is_found(stable, joined):
    (finding,) = judge.unrest(stable, 4, joined, 16)
    assert finding.startswith(f"no rest after the last fault: {stable} groups of 4 are Stable")


def test_memory_that_peers_make_the_daemon_hold_is_held_against_its_budget():
    assert judge.hoarded(100, 227, 64 * 1_048_576, 64) == []
    (finding,) = judge.hoarded(100, 340, 64 * 1_048_576, 64)
    assert finding == "hostile peers made the daemon hold 240 MB, 128 are allowed"
