"""``groupkeeper log verify`` beside the store: it finds that the newest files are missing, even if
their lines in the manifest are gone too.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli import log_verify
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.store_place import StorePlace
from groupkeeper.storage.backends.journal.read_store import NodeLogs
from groupkeeper.storage.event_log.check_store import StoreLogReport, compare
from groupkeeper.storage.event_log.manifest import MANIFEST
from groupkeeper.storage.event_log.source import LogNote
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import DAY_MS, UNTIL_S, SealedStore, until
from tests.helpers.storage.sites import FakeSite
from tests.storage.test_journal_sealing import SealedSite, append_some, is_sealed


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["log", "verify", *map(str, arguments)])


def remove_newest(log_dir: Path, count: int = 1) -> list[str]:
    """Delete the newest files and their lines, as a person does who tidies up. Return the names."""
    manifest = log_dir / MANIFEST
    lines = manifest.read_bytes().splitlines(keepends=True)
    removed = [json.loads(line)["file"] for line in lines[-count:]]
    manifest.write_bytes(b"".join(lines[:-count]))
    for file in removed:
        (log_dir / file).unlink()
    return removed


async def sealed_days(store: SealedStore, days: int = 4) -> None:
    """Write two events a day, and close the store. Each day is a file."""
    owner = await store.owner()
    for number in range(days):
        await store.append(owner, 0, [commit("g", 100 + number), commit("other", 1)])
        store.now_ms += DAY_MS
    await owner.storage.close()


@pytest.fixture
async def store(tmp_path: Path) -> SealedStore:
    """Four files. Only the newest event is still in the store."""
    store = SealedStore(tmp_path)
    await sealed_days(store)
    owner = await store.owner()  # a start trims what the last stop could not
    await until(lambda: len(store.live_seqs()) == 2)
    await owner.storage.close()
    return store


def test_a_sound_store_says_what_is_in_files(store: SealedStore) -> None:
    result = run("--store", store.path)
    assert result.exit_code == 0, result.output
    log_id = store.appended[0]["log_id"]
    assert f"{store.path}: event 8 of log {log_id} is the last in a file" in result.output


def test_newest_files_that_are_missing_with_their_lines_are_found(store: SealedStore) -> None:
    remove_newest(store.log_dir, 2)
    assert run("--dir", store.log_dir).exit_code == 0, "the files alone do not show it"
    result = run("--store", store.path)
    assert result.exit_code == 1
    log_id = store.appended[0]["log_id"]
    assert f"{store.path}: event 8 of log {log_id} is the last in a file" in result.output
    assert "events 5 to 6 were moved into files; they are in no file now, and not in the store" in (
        result.output
    )
    assert "events 7 to 8 were moved into files and are in no file now" in result.output
    shown = json.loads(run("--store", store.path, "-o", "json").stdout)
    (log,) = shown["store"]["logs"]
    assert shown["is_sound"] is False
    assert (log["lost"], log["unsafe"]) == ([[5, 6]], [[7, 8]])
    assert (log["sealed_log_id"], log["sealed_seq"]) == (log_id, 8)


async def test_a_restart_writes_files_again_that_the_store_still_has(store: SealedStore) -> None:
    remove_newest(store.log_dir)
    result = run("--store", store.path)
    assert result.exit_code == 1
    assert "restart the daemon soon" in result.output
    owner = await store.owner()
    await owner.storage.close()
    assert run("--store", store.path).exit_code == 0


async def test_it_is_found_beside_an_open_store(store: SealedStore) -> None:
    owner = await store.owner()
    remove_newest(store.log_dir)
    result = await asyncio.to_thread(run, "--store", store.path)
    await owner.storage.close()
    assert result.exit_code == 1, result.output
    assert "events 7 to 8 were moved" in result.output


def test_a_directory_that_is_gone_is_a_problem(store: SealedStore) -> None:
    store.log_dir.rename(store.log_dir.with_name("elsewhere"))
    result = run("--store", store.path)
    assert result.exit_code == 1
    assert f"its files were in {store.log_dir}, which does not exist" in result.output
    moved = run("--store", store.path, "--dir", store.log_dir.with_name("elsewhere"))
    assert moved.exit_code == 0, moved.output


def test_the_settings_name_the_store_and_the_files(
    store: SealedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "groupkeeper.toml"
    settings.write_text(f'[storage]\nurl = "sqlite:///{store.path}"\n[log]\ndir = "log"\n')
    assert run("--config", settings).exit_code == 0
    remove_newest(store.log_dir)
    result = run("--config", settings)
    assert result.exit_code == 1
    assert "events 7 to 8 were moved" in result.output


def test_without_the_store_of_the_settings_the_files_are_checked(
    store: SealedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPKEEPER_LOG__DIR", str(store.log_dir))
    for url, told in (
        (f"sqlite:///{store.path}.not", "not compared"),
        ("memory:", "not compared"),
    ):
        monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", url)
        result = run()
        assert (result.exit_code, told in result.output) == (0, True), result.output
    store.path.write_bytes(b"no database" * 1000)
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", f"sqlite:///{store.path}")
    assert "not compared" in run().output


def test_a_store_that_is_named_and_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    result = run("--store", tmp_path / "nothing")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert "there is no such file" in result.stderr
    assert run("--store", "no-store://here").exit_code == 2


async def test_a_store_that_never_sealed_has_no_problem(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await store.owner()
    await owner.storage.close()
    result = run("--store", store.path)
    assert (result.exit_code, "no event was moved into a file yet" in result.output) == (4, True)


async def test_events_that_retention_deleted_are_not_missing(tmp_path: Path) -> None:
    store = SealedStore(tmp_path, retention_ms=2 * DAY_MS)
    await sealed_days(store, 5)
    store.now_ms += DAY_MS
    owner = await store.owner()
    await until(lambda: not any("-1-2." in segment for segment in store.files()))
    await owner.storage.close()
    result = run("--store", store.path)
    assert result.exit_code == 0, result.output


async def test_files_of_a_log_that_an_older_copy_replaced_stand_for_nothing(
    tmp_path: Path,
) -> None:
    """The abandoned events have the same seqs as those of the log whose only file is missing."""
    store = SealedStore(tmp_path, segment_bytes=1)
    owner = await store.owner()
    await store.append(owner, 0, [commit("g", 1)])
    await until(lambda: bool(store.files()) and "noted" in store.steps)
    copy = store.image(tmp_path / "copy")
    for offset in range(2, 6):
        await store.append(owner, 0, [commit("g", offset)])
    await owner.storage.close()
    abandoned = store.files()
    for suffix in ("", "-wal"):
        name = store.path.name + suffix
        store.path.with_name(name).unlink(missing_ok=True)
        (copy.path.with_name(name)).rename(store.path.with_name(name))
    store.appended = []
    owner = await store.owner()
    await store.append(owner, 0, [commit("g", 500)])
    await owner.storage.close()
    assert run("--store", store.path).exit_code == 0
    (log_started, *_) = store.read()[1:]
    assert log_started["kind"] == "log_started"
    remove_newest(store.log_dir, len(store.files()) - len(abandoned))
    assert store.files() == abandoned
    result = run("--store", store.path)
    assert result.exit_code == 1, result.output
    assert f"event 3 of log {log_started['log_id']} is the last in a file" in result.output
    assert "events 3 to 3 were moved into files" in result.output


# --- a store on a server --------------------------------------------------------------------------


def compared(site: SealedSite, directory: Path | None = None) -> list[StoreLogReport]:
    def place_of(name: str, note: LogNote) -> Path | None:
        return directory or (Path(note.log_dir) if note.log_dir else None)

    return compare(NodeLogs(site.site.driver), place_of)


@pytest.mark.parametrize("is_running", [True, False])
async def test_newest_files_of_a_node_that_are_missing_are_found(
    tmp_path: Path, is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = SealedSite(FakeSite(), tmp_path / "log")
    owner = await site.owner()
    await append_some(owner, 0, 20)
    await owner.fold_all()
    await until(lambda: is_sealed(owner))
    await append_some(owner, 20, 2)
    await until(lambda: is_sealed(owner))
    if not is_running:
        await owner.storage.close()
    async with asyncio.timeout(UNTIL_S):
        while True:
            (log,) = await asyncio.to_thread(compared, site)
            if log.sealed_seq == 33:  # it is recorded a moment after it is sealed
                break
    assert (log.name, log.problems) == ("1", [])
    assert log.sealed_log_id == site.site.server.events()[-1]["log_id"]
    remove_newest(site.directory, len([*site.directory.glob("dt=*/events-*.jsonl.gz")]) - 2)
    (log,) = await asyncio.to_thread(compared, site)
    assert log.problems
    assert (log.lost + log.unsafe)[-1][1] == 33
    monkeypatch.setattr(StorePlace, "logs", lambda *_: NodeLogs(site.site.driver))
    result = await asyncio.to_thread(run, "--store", "postgres://host/db")
    assert result.exit_code == 1
    assert "postgres://host/db, node 1: event 33 of log" in result.output
    if is_running:
        await owner.storage.close()


async def test_files_of_a_node_on_another_machine_are_not_compared(tmp_path: Path) -> None:
    site = SealedSite(FakeSite(), tmp_path / "log")
    owner = await site.owner()
    await append_some(owner, 0, 2)
    await until(lambda: is_sealed(owner))
    await owner.storage.close()
    site.directory.rename(tmp_path / "elsewhere")
    (log,) = await asyncio.to_thread(compared, site)
    assert log.problems == []
    assert log.notes == [
        f"its files are in {site.directory}, which is not on this machine: not compared"
    ]
    (log,) = await asyncio.to_thread(compared, site, tmp_path / "elsewhere")
    assert (log.problems, log.notes) == ([], [])


def test_a_store_whose_events_are_never_in_files_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class TopicLogs:
        has_files = False
        is_shared = True

    monkeypatch.setattr(StorePlace, "logs", lambda *_: TopicLogs())
    result = run("--store", "kafka://b:9/t")
    assert (result.exit_code, log_verify.NO_FILES in result.output) == (4, True), result.output
