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
from groupkeeper.coordinator.cli.store_place import PasswordFileOption, StorePlace
from groupkeeper.coordinator.cli.stored_events import ConfigOption, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from groupkeeper.coordinator.daemon.config import LogSettings
    from groupkeeper.storage.tools.check import StoreReport
    from groupkeeper.storage.tools.kept_events import KeptEvents

app = typer.Typer(
    help="Check the store, make a backup of it, or move it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("check")
def check_command(
    config: ConfigOption = None,
    password_file: PasswordFileOption = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Also measure how long a durable write takes, if the store is on a server and no "
            "SQLite file. No daemon may use the store.",
        ),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Also look for data that interrupted writes have left behind in PostgreSQL, "
            "ZooKeeper or Consul. No daemon may use the store.",
        ),
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Mend what --repair finds. Without this nothing is changed."),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read the whole store. Print how large it is and how long this takes.

    The daemon may be running, except with --write and --repair. Changes no group. Exits 1 if the
    store cannot be opened, or if one of its values cannot be read.
    """
    from groupkeeper.storage.base import StorageError, StoreIdentity
    from groupkeeper.storage.tools.by_url import check_store, repair_store

    if apply and not repair:
        fail("--apply is only for --repair", USAGE)
    settings = settings_of(config)
    identity = StoreIdentity(settings.kafka.cluster_id, settings.offsets.topic_num_partitions)
    url, timeout_ms = settings.storage.url, settings.storage.append_timeout_ms
    ttl_ms = settings.cluster.lease_ttl_ms
    place = StorePlace(url, settings.storage.password_file).with_password_file(password_file)
    try:
        password = place.password()
        left: list[str] | None = None
        if repair:
            left = asyncio.run(
                repair_store(
                    url,
                    identity,
                    append_timeout_ms=timeout_ms,
                    lease_ttl_ms=ttl_ms,
                    password=password,
                    applies=apply,
                )
            )
        report = asyncio.run(
            check_store(
                url,
                identity,
                append_timeout_ms=timeout_ms,
                lease_ttl_ms=ttl_ms,
                password=password,
                measures_writes=write,
            )
        )
    except StorageError as error:
        fail(str(error), FAILED)
    if output is Output.JSON:
        shown = asdict(report) if left is None else {**asdict(report), "left_behind": left}
        print(json.dumps(shown, indent=2))
    else:
        for line in [*_lines(report), *_repair_lines(left, applied=apply)]:
            print(plain(line))
    if report.problems:
        fail("; ".join(report.problems), FAILED)


def _lines(report: StoreReport) -> Iterator[str]:
    """Yield the lines to print about a check: the figures, and advice."""
    from groupkeeper.storage.tools.check import SLOW_WRITE_MS

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
    for line in report.advice:
        yield f"advice: {line}"
    yield "everything can be read" if not report.problems else "not everything can be read"


def _repair_lines(left: list[str] | None, *, applied: bool) -> Iterator[str]:
    """Yield the lines to print about a repair. Without --repair, ``left`` is None, and there are no
    lines.
    """
    if left is None:
        return
    for line in left:
        yield f"{'mended' if applied else 'to mend'}: {line}"
    if not left:
        yield "there is nothing to mend"
    elif not applied:
        yield "nothing was changed: --apply mends it"


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; it must not exist.")],
    config: ConfigOption = None,
) -> None:
    """Copy the SQLite file of the store. The daemon may be running.

    When the command ends, the copy is checked and on disk. The copy does not have the files of the
    event log: copy log.dir too, after this command.
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
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="The URL of the new store. It must be empty. Only an interrupted move of the same "
            "store may have written to it.",
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="URL", help="The URL of the old store. Default: storage.url."
        ),
    ] = None,
    password_file: PasswordFileOption = None,
    to_password_file: Annotated[
        Path | None,
        typer.Option(
            "--to-password-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A file whose first line is the password of the new store. Default: the password "
            "file of the old store, if both stores are of the same kind, or if the old one is a "
            "SQLite file.",
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Copy all groups, topics and configs to another store, and compare the two stores at the end.

    Stop the daemon first. If the command is interrupted, repeat it. When it has succeeded, set
    storage.url to the new store and start the daemon. The old store is not changed.

    Earlier events are not copied: the new store begins its own event log. Events that are only in
    the old store are written into files in log.dir, beside the files of earlier events. With
    log.sealing = "off" they are not. Keep the files: they are the history of the groups up to the
    move.
    """
    from groupkeeper.storage.base import StorageError, StoreIdentity
    from groupkeeper.storage.tools.by_url import move_store

    settings = settings_of(config)
    identity = StoreIdentity(settings.kafka.cluster_id, settings.offsets.topic_num_partitions)
    url = source or settings.storage.url
    old = StorePlace(url, settings.storage.password_file).with_password_file(password_file)
    try:
        password, target_password = old.password(), _new_place(to, old, to_password_file).password()
        moved = asyncio.run(
            move_store(
                url,
                to,
                identity,
                append_timeout_ms=settings.storage.append_timeout_ms,
                lease_ttl_ms=settings.cluster.lease_ttl_ms,
                node_id=settings.node_id,
                password=password,
                target_password=target_password,
                progress=_say_progress,
            )
        )
    except StorageError as error:
        fail(str(error), FAILED)
    print(f"{moved.groups} groups are in the new store; {moved.written} values were written")
    _keep_events(url, settings.log, password)


def _new_place(to: str, old: StorePlace, to_password_file: Path | None) -> StorePlace:
    """Return the place to which a store is moved, with its password file. Without
    ``--to-password-file``, this is the file of the old store, but not if the two stores are servers
    of different kinds.
    """
    from groupkeeper.storage.open import SQLITE, scheme_of

    url = str(old.where)
    is_for_both = url.startswith(SQLITE) or scheme_of(url) == scheme_of(to)
    new = StorePlace(to, old.password_file if is_for_both else "")
    return new.with_password_file(to_password_file)


def _keep_events(url: str, log: LogSettings, password: str | None) -> None:
    """Write the events of the old store into files, if log.sealing is not "off". Print where the
    history of the old store is.
    """
    from groupkeeper.storage.base import StorageError
    from groupkeeper.storage.event_log.segments import SegmentError
    from groupkeeper.storage.open import without_password
    from groupkeeper.storage.tools.by_url import keep_events_of

    logs: Mapping[str, KeptEvents] = {}
    if log.sealing != "off":
        try:
            logs = keep_events_of(url, Path(log.dir), password)
        except (StorageError, SegmentError, OSError) as error:
            fail(f"the events of the old store are not in files yet: {error}; try again", FAILED)
    if not logs:
        print(
            f"the events stay in {without_password(url)}, with what is in its log.dir: keep both "
            "for as long as you need the history until now"
        )
    for name, kept in logs.items():
        for line in _kept_lines(f" of node {name}" if len(logs) > 1 else "", kept):
            print(line)


def _kept_lines(of_log: str, kept: KeptEvents) -> Iterator[str]:
    """Yield the lines to print about the events of a log: where they are, and which are missing."""
    keep = f"({kept.written} were written now): keep them, they are not in the new store"
    if kept.lost is None:
        yield (
            f"the events up to {kept.last_seq}{of_log} of the old store are in files in "
            f"{kept.directory} {keep}"
        )
    else:
        first, last = kept.lost
        yield f"events{of_log} of the old store are in files in {kept.directory} {keep}"
        recorded = "" if kept.absent is None else f": the store has recorded {kept.absent}"
        yield f"the events {first} to {last}{of_log} are not here{recorded}"
    for file in kept.put_aside:
        yield f"{file} was damaged, and was renamed"


def _say_progress(done: int, all_values: int) -> None:
    typer.echo(f"{done} of {all_values} values", err=True)
