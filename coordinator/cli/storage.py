"""``groupkeeper storage check``, ``storage backup`` and ``storage move``."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption
from groupkeeper.coordinator.cli.plain_text import plain
from groupkeeper.coordinator.cli.stored_events import ConfigOption, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from groupkeeper.storage.store_check import StoreReport

app = typer.Typer(
    help="Check the store, make a backup of it, or move it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("check")
def check_command(
    config: ConfigOption = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Also measure durable writes of a store on a server. No daemon may use it.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read the whole store and measure it, while a daemon runs or not. Changes no group.

    Exits 1 if the store cannot be opened, or if a value of it cannot be read.
    """
    from groupkeeper.storage.base import StorageError, StoreIdentity
    from groupkeeper.storage.open import check_store
    from groupkeeper.storage.password_file import read_password

    settings = settings_of(config)
    identity = StoreIdentity(settings.kafka.cluster_id, settings.offsets.topic_num_partitions)
    try:
        report = asyncio.run(
            check_store(
                settings.storage.url,
                identity,
                append_timeout_ms=settings.storage.append_timeout_ms,
                password=read_password(settings.storage.password_file),
                measures_writes=write,
            )
        )
    except StorageError as error:
        fail(str(error), FAILED)
    if output is Output.JSON:
        print(json.dumps(asdict(report), indent=2))
    else:
        for line in _lines(report):
            print(plain(line))
    if report.problems:
        fail("; ".join(report.problems), FAILED)


def _lines(report: StoreReport) -> Iterator[str]:
    """Yield the lines to print about a check: its findings, and their meaning."""
    from groupkeeper.storage.store_check import SLOW_WRITE_MS

    if report.used_by:
        yield f"used by: {report.used_by}"
    yield f"groups: {report.groups}, with {report.offsets} offsets"
    if report.groups:
        yield f"the largest: {report.largest_group!r}, with {report.largest_offsets} offsets"
    yield f"read in {report.read_ms:.0f} ms: a start takes about as long"
    if report.unfolded:
        yield f"requests that are not folded yet: {report.unfolded}"
    if report.round_trip_ms is not None:
        yield f"a round trip: {report.round_trip_ms:.1f} ms"
    if report.write_ms is not None:
        slow = " (slow)" if report.write_ms > SLOW_WRITE_MS else ""
        yield f"a durable write: {report.write_ms:.1f} ms{slow}. Each commit waits for one"
    yield "everything can be read" if not report.problems else "not everything can be read"


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; it must not exist.")],
    config: ConfigOption = None,
) -> None:
    """Copy the SQLite file of the store, while a daemon uses it.

    The copy is checked, and is on disk when the command ends. Copy log.dir after it.
    """
    from groupkeeper.storage.backends.sqlite.backup import back_up
    from groupkeeper.storage.base import StorageError
    from groupkeeper.storage.open import SQLITE

    url = settings_of(config).storage.url
    if not url.startswith(SQLITE):
        fail("storage.url is not a SQLite file: make a backup with the tools of its server", USAGE)
    try:
        size = back_up(Path(url.removeprefix(SQLITE)), file)
    except StorageError as error:
        fail(str(error), FAILED)
    print(f"{file}: {size} bytes")


@app.command("move")
def move_command(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="The new store, on a server.")],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="The old store, instead of storage.url."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Copy all groups, topics and configs to another store, and compare them at the end.

    Stop the daemon first. The old store stays as it is, and so does its event log. The command can
    be repeated if it was interrupted. Then set storage.url to the new store.
    """
    from groupkeeper.storage.base import StorageError, StoreIdentity
    from groupkeeper.storage.open import move_store
    from groupkeeper.storage.password_file import read_password

    settings = settings_of(config)
    identity = StoreIdentity(settings.kafka.cluster_id, settings.offsets.topic_num_partitions)
    try:
        moved = asyncio.run(
            move_store(
                source or settings.storage.url,
                to,
                identity,
                append_timeout_ms=settings.storage.append_timeout_ms,
                password=read_password(settings.storage.password_file),
                progress=_say_progress,
            )
        )
    except StorageError as error:
        fail(str(error), FAILED)
    print(f"{moved.groups} groups are in the new store; {moved.written} values were written")


def _say_progress(done: int, all_values: int) -> None:
    typer.echo(f"{done} of {all_values} values", err=True)
