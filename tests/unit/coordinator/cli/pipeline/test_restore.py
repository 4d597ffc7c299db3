"""What the commands of restore and migration read and print; no server, no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest
import typer
from msgspec.structs import replace
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.extras import BRINGS
from groupkeeper.coordinator.cli.group import Output
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.pipeline.inputs import file_name, parse_moment, read_properties
from groupkeeper.coordinator.cli.pipeline.migrate import import_command, print_verified
from groupkeeper.coordinator.cli.pipeline.plan_run import Again, print_result
from groupkeeper.coordinator.cli.pipeline.plan_view import (
    moment,
    print_outcomes,
    print_plan,
    summary,
)
from groupkeeper.coordinator.cli.pipeline.restore import restore_command
from groupkeeper.coordinator.cli.pipeline.restoring import wrong_segments
from groupkeeper.coordinator.cli.pipeline.tables import report_command
from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.pipeline.log.segment_files import ABSENT, lost_problem
from groupkeeper.pipeline.restore.apply import Outcome, Purpose, Result, make_plan
from groupkeeper.pipeline.restore.cluster import ClusterEndpoint
from groupkeeper.pipeline.restore.drift import drift, moved_on
from groupkeeper.pipeline.restore.plan import Committed, Log, Partition, Plan, PlanKind, plan_group
from groupkeeper.storage.codec.events import Stamp, event_dict
from groupkeeper.storage.event_log.manifest import MANIFEST, add
from groupkeeper.storage.event_log.sealing.segment_writer import write_segments
from groupkeeper.storage.event_log.segments import Segment
from tests.helpers.daemon.fake_cluster import FakeCluster

NOW = 1_795_291_200_000  # 2026-11-21T20:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T19:15:00Z", NOW - 45 * 60_000),
        ("2026-11-21T19:15", NOW - 45 * 60_000),
        ("2026-11-21T20:15:00.250+01:00", NOW - 45 * 60_000 + 250),
        ("15m", NOW - 15 * 60_000),
        ("2h ago", NOW - 2 * 3_600_000),
    ],
)
def test_a_moment_is_iso_or_so_long_ago(text: str, expected: int) -> None:
    assert parse_moment(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "15", "2027-01-01T00:00:00Z"])
def test_another_text_or_a_moment_to_come_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        parse_moment(text, NOW)
    assert f"--as-of {text}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["99999999d", "1969-12-31T23:59:59Z"])
def test_a_moment_before_1970_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        parse_moment(text, NOW)
    assert capsys.readouterr().err == (
        f"groupkeeper: --as-of {text}: is before 1970, and no log is that old\n"
    )
    assert parse_moment("1970-01-01T00:00:00Z", NOW) == 0


def test_a_history_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BRINGS, "pipeline", ())  # nothing of Spark's is come to
    wanted = ["--group", "g", "--as-of", "1s", "--server", "127.0.0.1:1"]
    for places, said in (
        ([], "name the history: --store FILE, --log-dir DIR or --tables DIR"),
        (["--store", "s.db", "--tables", "t"], "--tables names a history, and so do --store and"),
        (["--log-dir", "l", "--tables", "t"], "--tables names a history, and so do --store and"),
    ):
        told = CliRunner().invoke(app, ["pipeline", "restore", *wanted, *places])
        assert (told.exit_code, said in told.stderr) == (2, True), told.stderr


def test_what_says_how_a_plan_is_made_is_refused_beside_one_that_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be taken for a part of the plan that is applied."""
    monkeypatch.setitem(BRINGS, "pipeline", ())
    given = ["--topic", "t", "--store", "s.db", "--accept-gaps", "--data", "none", "--apply"]
    told = CliRunner().invoke(app, ["pipeline", "restore", "--plan", "p.json", *given])
    assert (told.exit_code, told.stderr) == (
        2,
        "groupkeeper: --plan names an existing plan: leave out --store, --topic, --data and "
        "--accept-gaps\n",
    )


def test_a_place_without_a_history_is_told_before_a_server_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BRINGS, "pipeline", ())
    wanted = ["--group", "g", "--as-of", "1s", "--server", "127.0.0.1:1"]
    text = tmp_path / "text"
    text.write_text("no history")
    for place, code, said in (
        (("--store", tmp_path / "absent"), 1, "there is no such file. --store names the daemon's"),
        (("--store", text), 1, "is not a SQLite database. --store names the daemon's"),
        (("--log-dir", tmp_path / "absent"), 4, "holds no sealed segment"),
        (("--log-dir", text), 1, "cannot be read"),
        (("--tables", tmp_path / "absent"), 4, "does not exist: is that the --out of"),
    ):
        told = CliRunner().invoke(app, ["pipeline", "restore", *wanted, *map(str, place)])
        assert (told.exit_code, said in told.stderr) == (code, True), told.stderr
        assert str(place[1]) in told.stderr


def test_a_path_that_spark_takes_for_a_pattern_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables were written to it, none was found there, and the run had "nothing changed"."""
    monkeypatch.setitem(BRINGS, "pipeline", ())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # there is no Spark to be started
    monkeypatch.chdir(tmp_path)
    (tmp_path / "groupkeeper-log").mkdir()
    wild = "tables[1]"
    for given in (
        ["run", "--out", wild],
        ["run", "--log-dir", "log?"],
        ["report", "--tables", "{a,b}"],
        ["import", "dump", "--tables", "tables*"],
        ["restore", "--group", "g", "--as-of", "1s", "--tables", wild],
        ["restore", "--group", "g", "--as-of", "1s", "--log-dir", wild],
    ):
        told = CliRunner().invoke(app, ["pipeline", *given])
        assert told.exit_code == 2, told.output
        assert "as a pattern of names" in " ".join(told.output.replace("│", "").split())
    assert [path.name for path in tmp_path.iterdir()] == ["groupkeeper-log"]


def test_what_is_no_dump_is_told_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BRINGS, "pipeline", ())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # there is no Spark to be started
    file = tmp_path / "file"
    file.write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/dump.json").mkdir()
    for dump, said in (
        ("absent", "has no dump.json"),
        ("file", "has no dump.json"),
        ("other", "dump.json: Is a directory"),
    ):
        given = ["import", str(tmp_path / dump), "--tables", str(tmp_path / "t")]
        told = CliRunner().invoke(app, ["pipeline", *given])
        assert (told.exit_code, said in told.stderr) == (1, True), told.output
        assert not (tmp_path / "t").exists()


def test_settings_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "settings").write_bytes(b"\xff\xfe")
    with pytest.raises(typer.Exit):
        read_properties(tmp_path / "settings")


def test_what_retention_could_not_read_is_wrong_with_a_log(tmp_path: Path) -> None:
    assert wrong_segments(tmp_path) == {}
    lost = Segment(
        file="dt=2026-11-21/events-a-1-2.jsonl.gz",
        log_id="a",
        first_seq=1,
        last_seq=2,
        first_ts_ms=NOW,
        last_ts_ms=NOW,
        file_bytes=3,
        json_bytes=30,
        sha256="00",
    )
    add(tmp_path, [lost])
    assert set(wrong_segments(tmp_path).values()) == {ABSENT}
    add(tmp_path, [replace(lost, damaged="has 2 bytes")])
    assert set(wrong_segments(tmp_path).values()) == {lost_problem("has 2 bytes")}


def test_a_segment_that_the_manifest_does_not_list_is_read_to_see_whether_it_is_right(
    tmp_path: Path,
) -> None:
    event = GroupCreated(group_id="g")
    sealed = write_segments(
        tmp_path, [event_dict(Stamp("a", NOW, NOW), seq, 0, 1, event) for seq in (1, 2)]
    )
    (path,) = [tmp_path / segment.file for segment in sealed]
    (tmp_path / MANIFEST).unlink()
    assert wrong_segments(tmp_path) == {}
    path.rename(path.with_name("events-a-1-3.jsonl.gz"))
    ((wrong, problem),) = wrong_segments(tmp_path).items()
    assert (wrong.first_seq, wrong.last_seq) == (1, 3)
    assert problem == "is not in the manifest, and ends with event 2, its name says 3"


def test_a_moment_is_printed_as_it_is_read() -> None:
    assert moment(NOW) == "2026-11-21T20:00:00Z"
    assert parse_moment(moment(NOW - 1), NOW) == NOW - 1


@pytest.mark.parametrize("command", [report_command, restore_command, import_command])
def test_tables_may_lie_in_an_object_store(command: Callable[..., None]) -> None:
    """A Path would make one slash of the two in ``s3a://``."""
    assert get_type_hints(command)["tables"] in (str, str | None)


def a_plan(partitions: int = 3) -> Plan:
    orders = [Partition("orders", number) for number in range(partitions)]
    cluster = FakeCluster(
        {"billing": {each: Committed(50, -1, "now") for each in orders}},
        {each: Log(10, 100) for each in orders[1:]},
    )
    wanted = {"billing": {each: Committed(5 + 20 * each.partition) for each in orders}}
    return make_plan(cluster, wanted, cluster, Purpose(PlanKind.RESTORE, "a log", NOW, NOW - 1000))


def test_a_plan_is_a_table_that_a_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    plan = a_plan()
    print_plan(plan)
    said = capsys.readouterr().out
    assert f"PLAN         {plan.id} (restore, made 2026-11-21T20:00:00Z)" in said
    assert "AS OF        2026-11-21T19:59:59Z" in said
    rows = [" ".join(line.split()) for line in said.splitlines() if line.startswith("orders")]
    assert rows == [
        "orders 0 50 'now' 50 'now' 0 no such partition, unchanged",
        "orders 1 50 'now' 25 -25 -",
        "orders 2 50 'now' 45 -5 -",
    ]
    assert "2 of 3 partitions change, 30 messages are read again, 1 unchanged." in said


def test_of_many_rows_the_first_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(a_plan(250))
    said = capsys.readouterr().out
    assert said.count("\norders") == 100
    assert "... and 150 more; the plan's file has all of them" in said


def test_names_that_would_act_on_the_terminal_are_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trap, topic = "a\nb\x1b[31mRED", Partition("t\x1b[2J", 0)
    cluster = FakeCluster({trap: {topic: Committed(50)}}, {topic: Log(10, 100)})
    purpose = Purpose(PlanKind.RESTORE, "a log", NOW, NOW - 1000)
    print_plan(make_plan(cluster, {trap: {topic: Committed(20)}}, cluster, purpose))
    print_outcomes([Outcome(trap, Result.REFUSED, 0, "has the member m\x1b[0m")])
    said = capsys.readouterr()
    assert r"GROUPS       a\nb\x1b[31mRED" in said.out
    assert r"t\x1b[2J" in said.out
    assert said.err == "groupkeeper: a\\nb\\x1b[31mRED: has the member m\\x1b[0m\n"
    assert "\x1b" not in said.out


def test_what_needs_a_person_is_said_of_each_group(capsys: pytest.CaptureFixture[str]) -> None:
    bad = [Outcome(f"g{n}", Result.REFUSED, 0, "has members") for n in range(12)]
    print_outcomes([Outcome("ok", Result.APPLIED, 3), *bad])
    said = capsys.readouterr()
    assert "1 group changed, and read back as planned" in said.out
    assert "12 groups REFUSED" in said.out
    assert "groupkeeper: g0: has members" in said.err
    assert "and 2 groups more; -o json names all of them" in said.err


@pytest.mark.parametrize(
    ("partitions", "wanted", "said"),
    [
        (1, 49, "1 of 1 partition changes, 1 message is read again."),
        (1, 51, "1 of 1 partition changes, 1 message is skipped."),
        (2, 60, "2 of 2 partitions change, 20 messages are skipped."),
        (1, 500, "1 of 1 partition changes, 50 messages are skipped, 1 clamped to what the log"),
        (2, 50, "0 of 2 partitions change."),
    ],
)
def test_a_plan_is_summed_up_as_a_person_would(partitions: int, wanted: int, said: str) -> None:
    there = [Partition("orders", number) for number in range(partitions)]
    now = {"g": dict.fromkeys(there, Committed(50))}
    cluster = FakeCluster(now, dict.fromkeys(there, Log(10, 100)))
    purpose = Purpose(PlanKind.RESTORE, "a log", NOW, NOW - 1000)
    plan = make_plan(cluster, {"g": dict.fromkeys(there, Committed(wanted))}, cluster, purpose)
    assert summary(plan).startswith(said)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            Result.PENDING,
            "Nothing was changed. To apply it: groupkeeper pipeline restore --plan p.js",
        ),
        (Result.DONE_BEFORE, "Nothing was changed: all is done. To undo it: groupkeeper pip"),
    ],
)
def test_what_comes_next_fits_what_was_found(
    capsys: pytest.CaptureFixture[str], result: Result, said: str
) -> None:
    print_result(a_plan(), Again(Path("p.json")), [Outcome("billing", result)], False, Output.TABLE)
    assert said in capsys.readouterr().out


def test_a_group_that_was_refused_is_not_said_to_be_ready(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit):
        print_result(
            a_plan(), Again(Path("p")), [Outcome("g", Result.REFUSED)], False, Output.TABLE
        )
    assert capsys.readouterr().out.splitlines() == ["1 group REFUSED", "Nothing was changed."]


def test_after_an_apply_the_way_back_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    plan, again = a_plan(), Again(Path("p.json"))
    print_result(plan, again, [Outcome("billing", Result.APPLIED, 2)], True, Output.TABLE)
    said = capsys.readouterr().out
    assert "To undo it: groupkeeper pipeline restore --plan p.json --undo --apply" in said
    undo = plan.undo(1)
    print_result(undo, again, [Outcome("billing", Result.PENDING, 2)], False, Output.TABLE)
    said = capsys.readouterr().out
    assert "To apply it: groupkeeper pipeline restore --plan p.json --undo --apply" in said
    with pytest.raises(typer.Exit):
        print_result(plan, again, [Outcome("g", Result.FAILED)], True, Output.TABLE)


def test_what_comes_next_names_the_server_and_the_settings_that_were_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Else the way back would lead to the server of the plan, which was not changed."""
    plan, done = a_plan(), [Outcome("billing", Result.APPLIED, 2)]
    print_result(
        plan, Again(Path("a plan.json"), "other:9092", Path("c")), done, True, Output.TABLE
    )
    assert capsys.readouterr().out.splitlines()[-1] == (
        "To undo it: groupkeeper pipeline restore --plan 'a plan.json' --server other:9092 "
        "--client-config c --undo --apply"
    )
    print_result(plan, Again(Path("p"), plan.content.server, None), done, True, Output.TABLE)
    assert "restore --plan p --undo" in capsys.readouterr().out


def test_a_plan_that_changes_nothing_is_not_offered_to_be_taken_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    orders = Partition("orders", 0)
    cluster = FakeCluster({"g": {orders: Committed(5)}}, {orders: Log(0, 9)})
    purpose = Purpose(PlanKind.RESTORE, "a log", NOW, NOW - 1000)
    plan = make_plan(cluster, {"g": {orders: Committed(5)}}, cluster, purpose)
    outcomes = [Outcome("g", Result.DONE_BEFORE)]
    print_result(plan, Again(Path("p")), outcomes, False, Output.TABLE)
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "Nothing was changed: there was nothing to do."


def test_a_look_counts_each_group_once_at_each_place(capsys: pytest.CaptureFixture[str]) -> None:
    plan = a_plan()
    there = [Outcome("a", Result.DONE_BEFORE), Outcome("b", Result.DONE_BEFORE)]
    here = [Outcome("a", Result.DONE_BEFORE), Outcome("b", Result.REFUSED, 1, "1 partition has")]
    with pytest.raises(typer.Exit):
        print_verified(plan, Path("p"), ("new:1", "old:1"), (there, here), Output.TABLE)
    said = capsys.readouterr()
    assert said.out.splitlines()[-8:] == [
        "At the target, new:1:",
        "2 groups as planned",
        "",
        "At the source, old:1:",
        "1 group unchanged since the plan was made",
        "1 group changed since the plan was made",
        "",
        "Nothing was changed: --verify only compares.",
    ]
    assert said.err == "groupkeeper: b: 1 partition has\n"
    print_verified(plan, Path("p"), ("new:1", "old:1"), (there, there), Output.JSON)
    shown = json.loads(capsys.readouterr().out)
    assert (len(shown["outcomes"]), len(shown["source_outcomes"])) == (2, 2)


def test_a_group_that_moved_on_at_its_source_is_told_with_its_partitions() -> None:
    plan = a_plan().content.groups[0]
    there = {Partition("orders", n): Committed(5 + 20 * n) for n in range(3)}
    assert moved_on(plan, there) == Outcome("billing", Result.DONE_BEFORE)
    one = moved_on(plan, {**there, Partition("orders", 1): Committed(26)})
    assert (one.result, one.changed) == (Result.REFUSED, 1)
    assert one.message.startswith(
        "1 partition has changed at the source since the plan was made: orders-1 was 25, is 26. "
    )
    many = moved_on(plan, {Partition("clicks", 0): Committed(3)})
    assert many.message.startswith(
        "4 partitions have changed at the source since the plan was made: clicks-0 was none, is 3;"
        " orders-0 was 5, is none; orders-1 was 25, is none; and 1 more. "
    )


def test_a_group_that_moved_on_is_told_with_the_member_that_has_the_partition() -> None:
    a, alpha = Partition("a", 0), Partition("alpha", 0)
    groups = [plan_group(g, {}, {alpha: Committed(1)}, {alpha: Log()}) for g in ("one", "two")]
    now = {"one": {a: Committed(2)}, "two": {a: Committed(1)}}
    asked = []

    def owners(group: str) -> dict[Partition, str]:
        asked.append(group)
        return {a: "billing-7 at /10.0.0.7"}

    one, two = drift(groups, now, {"a": "alpha"}, owners)
    assert "alpha-0 was 1, is 2 (of billing-7 at /10.0.0.7). Stop its consumers" in one.message
    assert (two.is_well, asked) == (True, ["one"])


def test_other_metadata_at_the_source_is_told_where_the_plan_keeps_it() -> None:
    plan = a_plan().content.groups[0]
    there = {Partition("orders", n): Committed(5 + 20 * n, -1, "new") for n in range(3)}
    told = moved_on(plan, there)
    assert told.changed == 2  # of orders-0, which is not there, the plan keeps the target's
    assert "orders-1 was 25, is 25 'new'; orders-2 was 45, is 45 'new'. " in told.message


def test_a_group_that_cannot_be_mapped_any_more_stops_no_other() -> None:
    a, alpha = Partition("a", 0), Partition("alpha", 0)
    groups = [plan_group(g, {}, {alpha: Committed(1)}, {alpha: Log()}) for g in ("both", "one")]
    now = {"both": {a: Committed(1), alpha: Committed(2)}, "one": {a: Committed(1)}}
    both, one = drift(groups, now, {"a": "alpha"})
    assert one == Outcome("one", Result.DONE_BEFORE)
    assert (both.group, both.result) == ("both", Result.REFUSED)
    assert "two topics would become 'alpha'" in both.message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--verify"], "name it with --plan FILE"),
        (["--undo", "--apply"], "name it with --plan FILE"),
        (["--plan", "p.json", "--verify", "--apply"], "--verify changes nothing"),
        (["--plan", "p.json", "--group", "g"], "an existing plan: leave out --group\n"),
        (["--plan", "p.json", "--map", "a=b", "--data", "none"], "leave out --map and --data\n"),
        (["--plan", "p.json", "--from", "a:1", "--apply"], "--from needs --verify"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BRINGS, "pipeline", ())  # nothing of Spark's is come to
    done = CliRunner().invoke(app, ["pipeline", "migrate", *options])
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_a_file_of_settings_is_read_as_the_clients_know_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\nsecurity.protocol = sasl_ssl\nsasl.password=a=b\n")
    properties = read_properties(file)
    assert properties["sasl.password"] == "a=b"
    endpoint = ClusterEndpoint("a:1,b:2", properties)
    assert endpoint.settings() == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "sasl_plain_password": "a=b",
    }
    file.write_text("nonsense")
    with pytest.raises(typer.Exit):
        read_properties(file)
    assert "line 1: not of the form name=value" in capsys.readouterr().err


def test_a_group_of_any_name_makes_a_name_of_a_file() -> None:
    assert file_name("a/b grün") == "a_b_gr_n"
