"""When what is done, and who plays."""

from __future__ import annotations

import json
import sys

import pytest

from tests.soak import cast, faults
from tests.soak.__main__ import asked, main
from tests.soak.ledger import MEMBERS_MAX, Ledger, Writer


def test_the_daemon_is_killed_every_thirty_seconds():
    kills = [fault.at_s for fault in faults.plan(600) if fault.name == "kill daemon"]
    assert kills == [30.0 * n for n in range(1, 20)]


NONSENSE = ["--minutes=0", "--minutes=-1", "--minutes=nan", "--minutes=inf", "--minutes=x"]
NONSENSE += ["--groups=0", "--groups=1.5", "--members=0", "--members=199"]
NONSENSE += [f"--groups={MEMBERS_MAX + 1}", f"--members={MEMBERS_MAX + 1}"]


@pytest.mark.parametrize("option", NONSENSE)
def test_nonsense_is_refused_in_one_line(option, monkeypatch, capsys):
    """Of 200 groups each has a member at least: one without would never be Stable. Of more members
    than the offsets tell apart, two would commit the same."""
    monkeypatch.setattr(sys, "argv", ["soak", *option.split("=")])
    assert main() == 2
    told = capsys.readouterr().err
    assert told.startswith(f"soak: {option} is refused: give a ")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "groups", "members"),
    [
        ([], 200, 1_000),
        (["--groups", "1500"], 1_500, 1_500),
        (["--groups", "20"], 20, 1_000),
        (["--groups", "20", "--members", "100"], 20, 100),
    ],
)
def test_nobody_has_to_ask_for_members_to_have_one_in_each_group(options, groups, members):
    assert asked(options) == (600, groups, members)


def test_too_few_that_were_asked_for_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["soak", "--groups", "1500", "--members", "1000"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("soak: --members=1000 is refused: give a ")


@pytest.mark.parametrize("seconds", [42, 120, 600])
def test_every_kind_of_fault_is_in_every_run_and_over_at_its_end(seconds):
    plan = faults.plan(seconds)
    assert {fault.name for fault in plan} == {fault.name for fault in faults.CYCLE}
    assert all(fault.at_s > 0 and fault.at_s + fault.for_s < seconds for fault in plan)


def test_a_short_run_lives_faster():
    assert faults.pace(600) == 1
    assert faults.pace(42) == pytest.approx(0.35)


def test_who_is_dead_is_evicted_before_the_next_kill_starts_all_sessions_afresh():
    silent = [fault for fault in faults.CYCLE if fault.at_s > 90]
    assert silent
    longest_s = max(cast.SESSION_S.values())
    assert all(fault.at_s + longest_s < faults.CYCLE_S for fault in silent)


def test_the_daemon_is_stopped_for_less_than_a_session_of_librdkafka():
    (stop,) = [fault for fault in faults.CYCLE if fault.name == "stop daemon"]
    assert stop.for_s < cast.SESSION_S["librdkafka"]


def test_one_stop_of_clients_is_to_evict_nobody_and_one_everybody():
    stops = sorted(fault.for_s for fault in faults.CYCLE if fault.name == "stop clients")
    assert stops[0] < min(cast.SESSION_S.values()) / 2
    assert stops[1] > max(cast.SESSION_S.values())


@pytest.mark.parametrize("minutes", [0.7, 1, 2, 10])
def test_the_daemon_gives_an_append_up_well_before_the_database_is_let_go(minutes):
    """A run of 0.7 minutes held it for less than the 3 s that the daemon waited."""
    holds = [f.for_s for f in faults.plan(minutes * 60) if f.name == "hold database"]
    assert min(holds) > 2 * faults.append_timeout_ms(minutes * 60) / 1000


def test_every_member_has_one_part_and_every_kind_plays():
    roles = cast.roles(200, 1000, 1.0)
    assert set(roles) == set(cast.KINDS)
    everyone = [role for mine in roles.values() for role in mine]
    assert sorted(role.number for role in everyone) == list(range(1000))
    assert len({role.name for role in everyone}) == 1000
    members = [sum(role.group == f"group-{n}" for role in everyone) for n in range(200)]
    assert set(members) == {5}


def test_offsets_of_a_process_grow_and_tell_who_sent_them(tmp_path):
    ledger = Writer(tmp_path / "ledger")
    offsets = [ledger.next_offset(number) for number in (7, 7, 9, 3) for _ in range(50)]
    assert offsets == sorted(set(offsets))
    assert {offset % MEMBERS_MAX for offset in offsets} == {3, 7, 9}


def test_a_ledger_is_read_as_it_grows_and_never_half_a_line(tmp_path):
    file = tmp_path / "ledger"
    ledger = Ledger()
    ledger.follow("host", file, repeats=False)
    ledger.read()
    writer = Writer(file)
    writer.identity("m", "x")
    with file.open("ab") as raw:
        raw.write(b'["pul')
    ledger.read()
    assert ledger.holdings["x"].host == "host"
    with file.open("ab") as raw:
        raw.write(b'se", 5]\n')
    ledger.read()
    assert ledger.pulses == {"host": [5]}
    assert all(json.loads(line) for line in file.read_bytes().splitlines())
