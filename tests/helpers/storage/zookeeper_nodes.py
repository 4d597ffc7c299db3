"""The nodes of a store in ZooKeeper, read with kazoo alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from groupkeeper.storage.backends.journal.stored import entry_of, parts_of_entry
from groupkeeper.storage.backends.key_value.event_chunks import events_of
from groupkeeper.storage.codec.records import decode_payload, payload_events
from groupkeeper.storage.segment_lines import EventDict


@contextlib.contextmanager
def kazoo(servers: str) -> Iterator[Any]:
    """Yield a connected client of kazoo."""
    client = KazooClient(servers)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def children(client: Any, path: str) -> list[str]:
    """Return the children of a node: none if it does not exist."""
    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        return []


def stored_events(servers: str, root: str) -> list[EventDict]:
    """Return all events, those of the log and those in journals, each once."""
    found: dict[tuple[str, int], EventDict] = {}
    with kazoo(servers) as client:
        for name in children(client, f"{root}/events"):
            for event in events_of(client.get(f"{root}/events/{name}")[0]):
                found.setdefault((event["log_id"], event["seq"]), event)
        for life in children(client, f"{root}/lives"):
            path = f"{root}/lives/{life}"
            for row in [name for name in children(client, path) if "." not in name]:
                first = client.get(f"{path}/{row}")[0]
                rest = [
                    client.get(f"{path}/{row}.{part}")[0]
                    for part in range(1, parts_of_entry(first))
                ]
                entry = entry_of(int(row), [first, *rest])
                for event in payload_events(entry.first_seq, decode_payload(entry.payload)):
                    found.setdefault((event["log_id"], event["seq"]), event)
    return sorted(found.values(), key=lambda event: event["seq"])
