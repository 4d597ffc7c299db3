"""``groupkeeper upstream status``: the state of the cluster behind a running gateway."""

from __future__ import annotations

import http.client
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from groupkeeper.coordinator.cli.event_view import moment
from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption, print_table
from groupkeeper.coordinator.cli.health import page_of, reachable
from groupkeeper.coordinator.cli.plain_text import plain
from groupkeeper.coordinator.cli.stored_events import ConfigOption, settings_of
from groupkeeper.coordinator.daemon.address import parse_address

if TYPE_CHECKING:
    from groupkeeper.coordinator.gateway.status import (
        BrokerStatus,
        JournalStatus,
        UpstreamStatus,
    )

PATH: Final = "/upstream"
MAX_PAGE_BYTES: Final = 64 * 1024 * 1024

BROKER_COLUMNS = "BROKER PORT STATE SEEN CONNECTIONS SENT-BYTES RECEIVED-BYTES ADDRESS PROBLEM"
OPEN_COLUMNS = "GROUP PRODUCER EPOCH PARTITIONS SINCE"


def status_command(
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, metavar="S", help="How long to wait for the answer."),
    ] = 10.0,
) -> None:
    """Show the brokers behind a running gateway, their ports, and the open transactions.

    Asks the daemon at http.listen of the settings. Exits 1 if it does not answer.
    """
    settings = settings_of(config)
    if not settings.is_gateway:
        fail("the settings have no upstream.bootstrap: this is not a gateway", USAGE)
    address = reachable(parse_address(settings.http.listen))
    code, page = page_of(address, PATH, timeout, MAX_PAGE_BYTES)
    if code != http.client.OK:
        fail(f"http://{address}{PATH}: {code} {page[:200].decode(errors='replace')}", FAILED)
    found = _decoded(page)
    if output is Output.JSON:
        sys.stdout.write(page.decode() + "\n")
    else:
        _print(found)


def _decoded(page: bytes) -> UpstreamStatus:
    import msgspec

    from groupkeeper.coordinator.gateway.status import UpstreamStatus

    try:
        return msgspec.json.decode(page, type=UpstreamStatus)
    except msgspec.DecodeError as error:
        fail(f"the daemon has another version than this command: {error}", FAILED)


def _print(found: UpstreamStatus) -> None:
    print(plain(f"cluster {found.cluster_id or 'unknown'}, answered {_ago(found.answered_s)}"))
    if found.problem:
        print(plain(f"not served: {found.problem}"))
    if found.brokers:
        print()
        print_table(BROKER_COLUMNS.split(), [_broker(each) for each in found.brokers])
    print()
    _print_journal(found.journal)
    if found.adopted_groups is not None:
        print(f"adopted groups: {found.adopted_groups}")
    if (mirror := found.mirror) is not None:
        print(
            f"mirror: {mirror.waiting_groups} groups wait for at most {mirror.lag_s:.1f} s, "
            f"{mirror.refused} offsets were refused"
        )


def _broker(each: BrokerStatus) -> tuple[object, ...]:
    state = "gone" if not each.address else "up" if each.is_up else "down"
    return (
        each.id,
        "-" if each.port is None else str(each.port),
        state,
        _ago(each.seen_s),
        each.connections,
        each.sent_bytes,
        each.received_bytes,
        each.address or "-",
        each.problem,
    )


def _print_journal(journal: JournalStatus) -> None:
    print(plain(f"journal {journal.topic}, id {journal.topic_id or 'unknown'}"))
    if journal.problem:
        print(plain(f"offsets in transactions have to wait: {journal.problem}"))
    for shard_id, reason in sorted(journal.lost.items()):
        print(plain(f"shard {shard_id} is lost (groupkeeper upstream resolve): {reason}"))
    print(f"records to read: {journal.lag_records}")
    print(f"transactions that ended since the start: {journal.ended_transactions}")
    if journal.silent_shards:
        print(f"shards that load, or whose store is slow, and say nothing: {journal.silent_shards}")
    print(f"open transactions: {len(journal.open) + journal.not_shown}")
    if journal.open:
        rows = [
            (
                each.group,
                each.producer_id,
                each.producer_epoch,
                each.partitions,
                moment(each.since_ms),
            )
            for each in journal.open
        ]
        print()
        print_table(OPEN_COLUMNS.split(), rows)
    if journal.not_shown:
        print(f"and {journal.not_shown} more")


def _ago(seconds: float | None) -> str:
    return "not since the start" if seconds is None else f"{seconds:.0f} s ago"
