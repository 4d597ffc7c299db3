"""``pipeline run --store``: the messages and exit codes of its first step."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE
from groupkeeper.coordinator.cli.pipeline.landing import Landing, landing_of
from groupkeeper.coordinator.cli.store_place import StorePlace, store_place

URL = "postgresql://me:geheim@127.0.0.1:1/db"


def test_without_a_store_nothing_is_written_first() -> None:
    assert landing_of(None, None, "tables", print, is_here=True) is None


def test_the_folder_is_in_the_tables_unless_it_is_named() -> None:
    store = store_place(URL)
    assert landing_of(store, None, "tables/", print, is_here=True) == Landing(
        store, Path("tables/log"), print
    )
    named = landing_of(store, "file:///a/b", "s3a://bucket/tables", print, is_here=True)
    assert named == Landing(store, Path("/a/b"), print)


@pytest.mark.parametrize(
    ("log_dir", "is_here"), [("s3a://bucket/log", True), (None, True), ("log", False)]
)
def test_a_folder_or_a_spark_elsewhere_is_refused(
    log_dir: str | None, is_here: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as refused:
        landing_of(store_place(URL), log_dir, "s3a://bucket/tables", print, is_here=is_here)
    assert refused.value.exit_code == USAGE
    assert "--store needs Spark on this machine" in capsys.readouterr().err


@pytest.mark.parametrize("place", [URL, "/nowhere/a.db"])
def test_a_store_that_cannot_be_read_is_one_line_without_the_password(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    landing = Landing(store_place(place), tmp_path, said.append)
    with pytest.raises(typer.Exit) as failed:
        landing.land()
    assert failed.value.exit_code == FAILED
    told = capsys.readouterr().err
    assert f"the events of {StorePlace(landing.store.where)} cannot be read: " in told
    landing.land_again()
    assert [f"groupkeeper: {line.removesuffix('; it is tried again')}\n" for line in said] == [told]
    assert "geheim" not in told


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "make room"), (errno.EACCES, "let this user write there")],
)
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(
    code: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("groupkeeper.storage.tools.by_url.land_events_of", refuse)
    said: list[str] = []
    Landing(StorePlace("/var/a.db"), tmp_path, said.append).land_again()
    assert said == [
        f"{tmp_path}: the events of /var/a.db cannot be written there ({os.strerror(code)}); "
        f"{advice}; it is tried again"
    ]
