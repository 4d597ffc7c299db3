"""Each rule finds its incident, and nothing where all is well."""

from __future__ import annotations

import json
import re
import shlex
from datetime import date

import duckdb
import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.reports.bounds import (
    BadBounds,
    GroupBounds,
    IncidentBounds,
    read_bounds,
)
from groupkeeper.pipeline.reports.incidents.find import at_least, find
from groupkeeper.pipeline.reports.incidents.rules import RULES
from groupkeeper.pipeline.reports.incidents.textfile import textfile
from groupkeeper.pipeline.reports.jobs import write_reports
from groupkeeper.pipeline.reports.report import Scope
from groupkeeper.pipeline.tables.versions import read_pointer
from groupkeeper.pipeline.tables.views import write_view_files
from tests.helpers.printed.printed_docs import ROOT
from tests.pipeline.conftest import a_site
from tests.pipeline.events import at, commit
from tests.pipeline.test_silver_gold import by, end_of

MINUTE_MS = 60_000

SILENT = "silent; {group} 'it'"
"""A group whose id means something to a shell, and to a template."""


def minute(number: float) -> int:
    return int(number * MINUTE_MS)


def of(group: str, client: str, member: str = "", **more) -> dict:
    return {**by(client, member), "group_id": group, **more}


def history() -> list[dict]:
    """Groups that each have one trouble, and some that have none."""
    told: list[tuple[int, object]] = []

    def say(at_minute: float, make) -> None:
        told.append((minute(at_minute), make))

    def commits(at_minute, group, partition, offset, before, **more):
        def make(seq, ts):
            return commit(
                seq, [("orders", partition, offset, before)], group=group, ts_ms=ts, **more
            )

        say(at_minute, make)

    def tells(at_minute, event):
        say(at_minute, lambda seq, ts: at(seq, event, ts))

    # the ends of all partitions; 3 and 7 get nothing for a long time
    for number in range(1, 96, 2):
        ends = [(0, number * 10), (1, number * 50), (2, number * 10), (4, 300_000), (7, 5)]
        tells(number, end_of(*ends, (3, 5 if number < 80 else 9)))
    # one partition stands while its group works, another group is silent
    commits(1, "stuck", 1, 10, 5, client_id="worker-1")
    for number in range(1, 96):
        commits(number, "stuck", 0, number * 10, number * 10 - 10)
        commits(number, "slow", 4, number * 10, number * 10 - 10)
    commits(2, SILENT, 2, 10, 5)
    tells(1, core.MemberJoin(**of(SILENT, "sleeper", "s")))
    # little to do is not silence, nor is being done
    commits(1, "steady", 3, 5, 4)
    commits(81, "steady", 3, 9, 5)
    commits(2, "done", 7, 5, 4)
    # moves over many messages: by a member, twice; by one that lost its session; by a restore
    commits(10, "skipper", 5, 250_000, 10)
    commits(11, "rewinder", 5, 190_000, 250_000)
    commits(12, "rewinder", 5, 130_000, 190_000)
    tells(13, core.MemberJoin(**of("fallen", "app", "f")))
    tells(13, core.MemberEvicted(**of("fallen", "app", "f"), reason="session_timeout"))
    commits(14, "fallen", 5, 30_000, 200_000, member="", generation=-1)
    restore = "groupkeeper-restore/p-1"
    commits(15, "restored", 5, 30_000, 200_000, member="", generation=-1, client_id=restore)
    # a storm, a zombie, and one commit refused as happens
    for number in range(12):
        tells(
            20 + number / 4,
            core.RebalanceStart(**of("stormy", "app", "m"), reason="member_join", members=1),
        )
        end = core.RebalanceEnd(group_id="stormy", generation_id=number, duration_ms=9, members=1)
        tells(20 + number / 4 + 0.01, end)
    for group, count in (("haunted", 12), ("usual", 1)):
        refused = core.CommitRejected(
            **of(group, "old", "z"), error="ILLEGAL_GENERATION", count=count
        )
        tells(90, refused)
    in_order = sorted(range(len(told)), key=lambda n: (told[n][0], n))
    return [told[n][1](seq, told[n][0]) for seq, n in enumerate(in_order, 1)]


@pytest.fixture(scope="module")
def troubled(spark, tmp_path_factory):
    site = a_site(spark, tmp_path_factory.mktemp("troubled"))
    site.seal(history())
    site.run()
    return site


@pytest.fixture(scope="module")
def found(troubled):
    return find(Scope(troubled.spark, troubled.lake))


@pytest.fixture(scope="module")
def by_group(found):
    return {(each["group"], each["rule"]): each for each in found.incidents}


def test_each_rule_finds_its_incident_and_nothing_else(by_group):
    assert set(by_group) == {
        ("stuck", "stalled_partition"),
        (SILENT, "silent_group"),
        ("slow", "lag_above_slo"),
        ("skipper", "messages_skipped"),
        ("rewinder", "offsets_rewound"),
        ("fallen", "offsets_rewound"),
        ("stormy", "rebalance_storm"),
        ("haunted", "refused_zombies"),
    }


def test_an_incident_has_its_time_its_amount_and_who(by_group):
    stalled = by_group["stuck", "stalled_partition"]
    assert (stalled["started_ms"], stalled["state"], stalled["subject"]) == (
        minute(1),
        "open",
        "orders",
    )
    assert (stalled["who"], stalled["detail"]) == ("worker-1 (/10.0.0.1)", "partition 1 at 10")
    assert stalled["amount"] == 95 * 50 - 50
    silent = by_group[SILENT, "silent_group"]
    assert silent["started_ms"] == minute(3), "the first sample of an end after its offset"
    assert silent["who"] == "its members: sleeper (/10.0.0.1)"
    rewound = by_group["rewinder", "offsets_rewound"]
    assert (rewound["amount"], rewound["findings"]) == (120_000, 2)
    assert (rewound["started_ms"], rewound["ended_ms"]) == (minute(11), minute(12))
    assert by_group["fallen", "offsets_rewound"]["who"].endswith("former member")
    assert by_group["stormy", "rebalance_storm"]["amount"] == 12
    haunted = by_group["haunted", "refused_zombies"]
    assert (haunted["amount"], haunted["state"]) == (12, "open")


def test_the_advice_names_the_group_for_a_shell_and_the_moment_before_it_happened(by_group):
    rewound = by_group["rewinder", "offsets_rewound"]["what_to_do"]
    assert (
        "`groupkeeper offsets restore --group rewinder --as-of 1970-01-01T00:10:59.999Z" in rewound
    )
    silent = by_group[SILENT, "silent_group"]["what_to_do"]
    command = silent.split("`")[1]
    assert shlex.split(command) == ["groupkeeper", "group", "describe", SILENT]


def test_what_is_open_comes_first_and_the_most_severe_of_it(found):
    assert [each["rule"] for each in found.open] == [
        "silent_group",
        "stalled_partition",
        "lag_above_slo",
        "refused_zombies",
    ]
    assert found.incidents[: len(found.open)] == found.open


def test_the_evidence_of_an_incident_is_a_query_of_its_rows(troubled, found):
    write_view_files(troubled.spark, troubled.lake, read_pointer(troubled.spark, troubled.lake))
    reader = duckdb.connect()
    with open(f"{troubled.lake.root}/views/duckdb.sql") as file:
        reader.execute(file.read())
    for each in found.incidents:
        rows = reader.execute(each["evidence"]).fetchall()
        assert rows, each["evidence"]


def test_bounds_of_a_group_replace_those_of_all(troubled):
    bounds = IncidentBounds(
        refused_commits=1,
        groups=(
            GroupBounds(match="hau*", refused_commits=100),
            GroupBounds(match="*", stalled_minutes=200, silent_minutes=200, slo_lag=10**9),
        ),
    )
    found = find(Scope(troubled.spark, troubled.lake, bounds=bounds))
    assert [(each["group"], each["rule"]) for each in found.open] == [("usual", "refused_zombies")]


def test_a_deleted_group_is_not_silent(spark, tmp_path):
    site = a_site(spark, tmp_path)
    lost = core.LostTopic("orders", "", [core.LostPartition(0, 5, 3, "", 5)])
    site.seal(
        [
            at(1, end_of((0, 5)), 0),
            commit(2, [("orders", 0, 5)], group="gone", ts_ms=minute(1)),
            at(3, end_of((0, 500)), minute(2)),
            at(4, core.OffsetDeleted(group_id="gone", reason="deleted", topics=[lost]), minute(9)),
            commit(5, [("orders", 1, 5)], ts_ms=minute(600)),
        ]
    )
    site.run()
    assert find(Scope(spark, site.lake)).incidents == []


def test_without_any_row_nothing_is_found(spark, tmp_path):
    site = a_site(spark, tmp_path)
    site.seal([at(1, core.GroupCreated(group_id="g"))])
    site.run()
    assert find(Scope(spark, site.lake)).as_of_ms is None


def test_the_page_and_its_files_have_every_incident(troubled, found, tmp_path):
    write_reports(Scope(troubled.spark, troubled.lake), ["incidents"], tmp_path, lambda _: None)
    rows = json.loads((tmp_path / "incidents.json").read_text())
    assert rows == found.incidents
    text = (tmp_path / "incidents.html").read_text()
    for rule in RULES:
        assert rule.title in text, rule.name


def test_the_file_for_prometheus_counts_open_incidents_by_rule(found):
    lines = textfile(found).splitlines()
    counted = {
        line.split('"')[1]: line.rpartition(" ")[2]
        for line in lines
        if line.startswith("groupkeeper_incidents_open{")
    }
    assert counted["silent_group"] == "1"
    assert counted["messages_skipped"] == "0"
    assert set(counted) == {rule.name for rule in RULES}
    began = [line for line in lines if line.startswith("groupkeeper_incident_start_")]
    assert len(began) == len(found.open)


def told(site, *options: str) -> tuple[int, str]:
    command = ["pipeline", "incidents", "--tables", site.lake.root, *options]
    done = CliRunner().invoke(app, command)
    return done.exit_code, done.output


def test_the_command_prints_open_incidents_and_exits_3_if_told_to(troubled, tmp_path):
    to = ["--to", str(tmp_path / "pages"), "--textfile", str(tmp_path / "keeper.prom")]
    code, said = told(troubled, *to, "--fail-on", "critical")
    assert code == 3
    assert "critical  silent_group  silent" in said
    assert "# TYPE" in (tmp_path / "keeper.prom").read_text()
    assert [path.name for path in tmp_path.iterdir() if "new" in path.name] == []
    high = tmp_path / "bounds.toml"
    high.write_text('[[groups]]\nmatch = "*"\nstalled_minutes = 999\nsilent_minutes = 999\n')
    assert told(troubled, *to, "--bounds", str(high), "--fail-on", "critical")[0] == 0


@pytest.mark.parametrize(("least", "fails"), [("critical", False), ("warning", True)])
def test_a_less_severe_incident_fails_only_a_command_that_asks_for_it(least, fails):
    assert ("warning" in at_least(least)) == fails
    assert "critical" in at_least(least)


def test_the_page_for_operators_has_every_rule():
    text = (ROOT / "docs/operate/incidents.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (critical|warning) \|", text, re.MULTILINE)
    assert rows == [(rule.name, rule.severity) for rule in RULES]


def test_a_file_with_unknown_bounds_is_refused(troubled, tmp_path):
    wrong = tmp_path / "bounds.toml"
    wrong.write_text("slo_lags = 5\n")
    with pytest.raises(BadBounds, match="slo_lags: extra inputs are not permitted"):
        read_bounds(wrong)
    code, said = told(troubled, "--bounds", str(wrong))
    assert code == 2
    assert "slo_lags" in said


def test_the_last_days_are_looked_at_unless_told_otherwise(troubled):
    scope = Scope(troubled.spark, troubled.lake)
    assert scope.of_last_days(2).since == date(1969, 12, 31)
