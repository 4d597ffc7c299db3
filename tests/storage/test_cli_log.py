"""``groupkeeper log``: what it finds in a directory, what it shows of a group, how it exits."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.event_view import colour_of, line_of
from groupkeeper.coordinator.cli.main import app
from groupkeeper.storage.backends.kafka_topic import log_rows
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.event_log.manifest import MANIFEST, reconcile, remove
from groupkeeper.storage.event_log.sealing.segment_writer import write_segments
from tests.helpers.core.records import commit
from tests.helpers.core.sample_events import rendered, rendered_snapshot
from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.storage.fake_kafka import FakeAdmin
from tests.helpers.storage.sealed_store import DAY_MS, SealedStore


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["log", *map(str, arguments)], prog_name="groupkeeper")


@pytest.fixture
async def store(tmp_path: Path) -> SealedStore:
    """Three days of a group, sealed, and an event that is not."""
    store = SealedStore(tmp_path)
    store.fold_after = 50_000
    owner = await store.owner()
    for number in range(3):
        await store.append(owner, 0, [commit("g", 100 + number), commit("other", 1)])
        store.now_ms += DAY_MS
    await owner.storage.close()
    store.fold_after = 0
    return store


def files(store: SealedStore) -> list[Path]:
    return sorted(store.log_dir.glob("dt=*/events-*"))


class RefusingAdmin(FakeAdmin):
    """The broker answers a request with an error that no retry ends."""

    async def event_partitions(self) -> int:
        raise StorageError("kafka://b:9/t: UnknownError()")


@pytest.mark.parametrize("command", ["log tail", "group owners g --topic t --partition 0"])
def test_a_store_whose_logs_cannot_be_found_is_told_in_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rows, "TopicAdmin", RefusingAdmin)
    told = CliRunner().invoke(app, [*command.split(), "--store", "kafka://b:9/t"])
    assert isinstance(told.exception, SystemExit)
    assert (told.exit_code, told.stdout) == (1, "")
    (line,) = told.stderr.splitlines()
    assert "kafka://b:9/t cannot be read: kafka://b:9/t: UnknownError()" in line


def test_a_sound_log_is_a_table_and_json(store: SealedStore) -> None:
    result = run("verify", "--dir", store.log_dir, "--events")
    assert result.exit_code == 0, result.output
    head, row = result.output.splitlines()
    assert " ".join(head.split()) == "LOG KIND SEGMENTS EVENTS SEQS FROM TO BYTES PROBLEMS"
    assert row.split()[1:5] == ["events", "3", "6", "1-6"]
    shown = json.loads(run("verify", "--dir", store.log_dir, "-o", "json").output)
    assert shown["is_sound"] is True
    (log,) = shown["logs"]
    assert (log["segments"], log["events"], log["gaps"]) == (3, 6, [])


def test_a_segment_that_is_missing_is_a_gap(store: SealedStore) -> None:
    files(store)[1].unlink()
    result = run("verify", "--dir", store.log_dir, "-o", "json")
    assert result.exit_code == 1
    (log,) = json.loads(result.stdout)["logs"]
    assert log["gaps"] == [[3, 4]]
    assert len(log["missing"]) == 1
    text = run("verify", "--dir", store.log_dir).output
    assert "events 3 to 4 are in no segment" in text
    assert "is in the manifest and does not exist" in text


def test_a_beginning_that_is_missing_is_a_gap(store: SealedStore) -> None:
    first, *_ = files(store)
    first.unlink()
    manifest = store.log_dir / MANIFEST
    manifest.write_bytes(b"".join(manifest.read_bytes().splitlines(keepends=True)[1:]))
    result = run("verify", "--dir", store.log_dir, "-o", "json")
    assert result.exit_code == 1
    (log,) = json.loads(result.stdout)["logs"]
    assert (log["gaps"], log["missing"]) == ([[1, 2]], [])


def test_the_beginning_of_a_store_beside_another_is_missing_all_the_same(
    store: SealedStore,
) -> None:
    """One that lives at the same time is not what came before it."""
    files(store)[0].unlink()
    beside = [{**event, "log_id": "beside"} for event in store.appended]
    write_segments(store.log_dir, beside)
    result = run("verify", "--dir", store.log_dir, "-o", "json")
    gaps = {log["log_id"]: log["gaps"] for log in json.loads(result.stdout)["logs"]}
    assert gaps == {store.appended[0]["log_id"]: [[1, 2]], "beside": []}


def test_what_is_said_to_have_gone_and_has_no_snapshot_is_missing(store: SealedStore) -> None:
    """Retention leaves one even where nothing was ever committed."""
    first, *_ = files(store)
    remove(store.log_dir, [str(first.relative_to(store.log_dir))])
    first.unlink()
    result = run("verify", "--dir", store.log_dir)
    assert result.exit_code == 1
    assert "events 1 to 2 are in no segment" in result.output


def test_a_log_behind_the_one_before_the_clock_was_set_back_has_its_beginning(
    store: SealedStore,
) -> None:
    last = store.appended[-1]
    write_segments(store.log_dir, [{**last, "log_id": "later", "seq": last["seq"] + 1}])
    assert run("verify", "--dir", store.log_dir).exit_code == 0
    write_segments(store.log_dir, [{**last, "log_id": "last", "seq": last["seq"] + 4}])
    result = run("verify", "--dir", store.log_dir)
    assert result.exit_code == 1
    assert "last: events 8 to 9 are in no segment" in result.output


def test_a_segment_that_is_there_twice_is_an_overlap(store: SealedStore) -> None:
    again = [event for event in store.appended if event["seq"] in (3, 4)]
    other = {**again[0], "seq": 5, "ts_ms": again[0]["ts_ms"]}
    write_segments(store.log_dir, [again[1], other])
    result = run("verify", "--dir", store.log_dir, "-o", "json")
    assert result.exit_code == 1
    (log,) = json.loads(result.stdout)["logs"]
    assert log["overlaps"] == [[4, 4], [5, 5]]


def test_damage_is_found_by_size_by_checksum_and_by_reading(store: SealedStore) -> None:
    first, second, third = files(store)
    first.write_bytes(first.read_bytes() + b"x")
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)
    (store.log_dir / MANIFEST).write_text(
        (store.log_dir / MANIFEST).read_text().replace(third.name, third.name.replace("5-6", "6-7"))
    )
    third.rename(third.with_name(third.name.replace("5-6", "6-7")))
    result = run("verify", "--dir", store.log_dir, "--events", "-o", "json")
    assert result.exit_code == 1
    (log,) = json.loads(result.stdout)["logs"]
    size, checksum, content_line = log["damaged"]
    assert "bytes, the manifest says" in size
    assert "checksum" in checksum
    assert "in the place of event 6" in content_line


def test_a_segment_without_a_line_is_a_note_and_a_torn_line_a_problem(store: SealedStore) -> None:
    manifest = store.log_dir / MANIFEST
    manifest.write_bytes(b"".join(manifest.read_bytes().splitlines(keepends=True)[:-1]))
    result = run("verify", "--dir", store.log_dir)
    assert result.exit_code == 0
    assert "is not in the manifest: the next start of its daemon adds it" in result.output
    manifest.write_bytes(manifest.read_bytes()[:-30])
    result = run("verify", "--dir", store.log_dir)
    assert result.exit_code == 1
    assert "line 2 cannot be read" in result.output


def test_a_line_that_a_crash_cut_off_is_told_and_does_no_harm_once_its_daemon_started(
    store: SealedStore,
) -> None:
    manifest = store.log_dir / MANIFEST
    whole = manifest.read_bytes()
    manifest.write_bytes(whole + whole[:50])
    last = run("verify", "--dir", store.log_dir)
    assert last.exit_code == 1
    assert "line 4 cannot be read: a crash cut it off" in last.output
    manifest.write_bytes(whole[:50] + b"\n" + whole)
    earlier = run("verify", "--dir", store.log_dir)
    assert earlier.exit_code == 0, earlier.output
    assert "line 1 was cut off by a crash" in earlier.output


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("garbage", [b"garbage", b"{}", b'{"file":"x"}'])
def test_a_damaged_line_is_told_wherever_it_stands(
    store: SealedStore, number: int, garbage: bytes
) -> None:
    manifest = store.log_dir / MANIFEST
    lines = manifest.read_bytes().splitlines()
    lines[number - 1] = garbage
    manifest.write_bytes(b"\n".join(lines) + b"\n")
    result = run("verify", "--dir", store.log_dir, "-o", "json")
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert shown["is_sound"] is False
    (problem,) = shown["problems"]
    assert problem.startswith(f"{MANIFEST}: line {number} is damaged")


UNLISTED = "dt=2023-11-16/events-new-1-1.jsonl.gz"


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        gzip.compress(b"no json\n"),
        gzip.compress(b"[]\n"),
        gzip.compress(b"{}\n"),
        gzip.compress(
            b'{"log_id":"new","seq":1,"ts_ms":"abc","kind":"group_created","group":"g"}\n'
        ),
    ],
    ids=["no gzip", "no JSON", "no object", "empty", "time is text"],
)
def test_a_damaged_file_without_a_line_is_a_line_and_what_becomes_of_it_is_told(
    store: SealedStore, content: bytes
) -> None:
    (store.log_dir / UNLISTED).parent.mkdir(exist_ok=True)
    (store.log_dir / UNLISTED).write_bytes(content)
    result = run("verify", "--dir", store.log_dir)
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert "the next start of its daemon adds it" not in result.output
    told = [line for line in result.output.splitlines() if "  events  " not in line]
    assert [line for line in told if f"{UNLISTED}: " in line][1:] == [
        f"{UNLISTED}: is not in the manifest and damaged: the next start of its daemon puts it "
        "aside (_broken-…)"
    ]
    assert f"groupkeeper: the log in {store.log_dir} is not sound" in told
    assert len(told) == 4, told
    reconcile(store.log_dir, ["new"])
    assert not (store.log_dir / UNLISTED).exists()


def test_no_log_is_a_code_of_its_own(tmp_path: Path) -> None:
    assert run("verify", "--dir", tmp_path / "nothing").exit_code == 4


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "store: there is no such file. --store names the daemon's SQLite file"),
        ("directory", "store: is a directory, and not the SQLite file of a store. --store names"),
        (b"", "store: is empty, no daemon has written to it yet. --store names"),
        (b"text" * 1000, "store: is not a SQLite database. --store names"),
    ],
    ids=["nothing", "directory", "empty", "text"],
)
def test_what_is_no_store_is_told_in_words(
    tmp_path: Path, content: bytes | str | None, says: str
) -> None:
    place = tmp_path / "store"
    if isinstance(content, bytes):
        place.write_bytes(content)
    elif content is not None:
        place.mkdir()
    result = run("tail", "--store", place)
    assert (result.exit_code, says in result.stderr) == (1, True), result.output
    assert result.stderr.count("\n") == 1


def test_a_store_whose_rows_nobody_else_can_read_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", "memory:")
    result = run("tail")
    says = "memory: keeps no log that can be read from here; name a --store FILE"
    assert (result.exit_code, says in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    "command",
    [
        ["log", "tail"],
        ["log", "verify"],
        ["check-config"],
        ["group", "--help"],
    ],
    ids=" ".join,
)
def test_a_reader_that_goes_ends_a_command_without_a_word(
    store: SealedStore, command: list[str]
) -> None:
    where = {"tail": ["--store", store.path], "verify": ["--dir", store.log_dir]}
    nobody_reads, pipe = os.pipe()
    os.close(nobody_reads)
    with os.fdopen(pipe, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "groupkeeper", *command, *where.get(command[-1], [])],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_the_last_events_of_a_group_are_lines_out_of_files_and_rows(store: SealedStore) -> None:
    result = run("tail", "--group", "g", "--store", store.path, "-n", 2)
    assert result.exit_code == 0, result.output
    first, second = result.output.splitlines()
    assert first == (
        "2023-11-16 12:00:00.000Z  commit             orders 0=101  "
        "by consumer-1 at /127.0.0.1, generation 3"
    )
    assert second.startswith("2023-11-17 12:00:00.000Z  commit")
    assert "\x1b" not in result.output
    everything = run("tail", "--store", store.path, "-n", 100, "-o", "json").output
    assert [json.loads(line) for line in everything.splitlines()] == store.appended
    assert run("tail", "--group", "nobody", "--store", store.path).exit_code == 4


@pytest.mark.parametrize(
    "event", [*rendered(), *rendered_snapshot()], ids=lambda event: event["kind"]
)
def test_every_kind_has_a_line(event: dict[str, Any]) -> None:
    when, kind, said = line_of(event, with_group=True)
    assert when == "1970-01-01 00:00:02.000Z"
    assert kind.strip() == event["kind"]
    assert said.startswith(event["group"] or "-")
    assert len(said) > len("g  ") or event["kind"] == "group_created"


def test_a_commit_that_goes_back_is_red_and_its_step_is_told() -> None:
    event = json.loads(json.dumps(rendered()[0]))
    row = event["topics"][0]["partitions"][0]
    row |= {"offset": 10, "previous_offset": 30}
    assert colour_of(event) == "red"
    assert "0=10 (-20)" in line_of(event, with_group=False)[2]
    row |= {"previous_offset": 7}
    assert colour_of(event) == "green"
    many = [{**row, "partition": number} for number in range(20)]
    event["topics"][0]["partitions"] = many
    assert "and 14 more" in line_of(event, with_group=False)[2]
