"""What `make bench` says of its figures; measuring them takes Kafka and six minutes."""

from __future__ import annotations

import signal
from collections import defaultdict

import pytest

from bench import beside_kafka, machine, sides
from bench.beside_kafka import FEW, GOALS, IDLE, OutOfTime, limited, show


def rows(factor: float) -> beside_kafka.Rows:
    found: beside_kafka.Rows = defaultdict(lambda: defaultdict(list))
    for goal in GOALS:
        row = found[goal.load, goal.figure]
        row["Kafka"] = [100.0, 200.0, 300.0]
        row["ours"] = [kafka * goal.quiet * factor for kafka in row["Kafka"]]
    found["heartbeat", "CPU us"]["echo"] = [10.0, 10.0, 10.0]
    found["heartbeat", "user us"]["ours"] = [6.0 * factor] * 3
    found["heartbeat", "user us"]["Kafka"] = [60.0] * 3
    return found


@pytest.mark.parametrize(("factor", "missed"), [(1.0, 0), (1.01, len(GOALS) + 1)])
def test_a_ratio_above_its_goal_is_counted(factor, missed, capsys):
    assert show(rows(factor), busy=False) == missed
    assert capsys.readouterr().out.count("MISSED") == missed


def test_a_busy_machine_has_goals_of_its_own(capsys):
    found = rows(1.0)
    found["heartbeat", "CPU us"]["ours"] = [49.0, 98.0, 151.0]
    assert show(found, busy=True) == 1  # the row of 500 members is above its goal too (0.9)
    assert "0.49 (0.49-0.503)  goal 0.5\n" in capsys.readouterr().out


def test_the_machine_says_its_speed(tmp_path):
    assert all(figure > 0 for figure in machine.speed(tmp_path).values())


def test_a_run_that_ended_early_shows_its_rounds_and_counts_what_is_missing(capsys):
    found = rows(1.0)
    del found["5,000 idle members", "cores"], found["5,000 idle members", "memory, MiB"]
    found["rebalance of 500", "p50 ms"]["ours"].pop()
    assert show(found, busy=False) == 2
    assert capsys.readouterr().out.count("not measured\n") == 2


def test_nothing_measured_is_nothing_reached(capsys):
    nothing: beside_kafka.Rows = defaultdict(lambda: defaultdict(list))
    assert show(nothing, busy=False) == len(GOALS) + 1


def test_a_generator_that_does_not_answer_ends_the_run(monkeypatch):
    monkeypatch.setattr(sides, "ASK_LIMIT_S", 0.01)
    monkeypatch.setattr(sides, "STOP_LIMIT_S", 0.01)
    silent = sides.Side("ours", ["sleep", "600"])
    with pytest.raises(SystemExit, match="no result"):
        silent.ask(do="rebalance")
    silent.stop()
    assert silent.ended


def test_the_run_has_a_limit():
    with pytest.raises(OutOfTime), limited(1):
        signal.raise_signal(signal.SIGALRM)


def test_all_members_may_connect_to_groupkeeper():
    idle = IDLE["groups"] * IDLE["members"]
    few = FEW["groups"] * FEW["members"]
    rebalance = 500
    assert idle + few + rebalance <= sides.SETTINGS["kafka.max_connections_per_address"]
