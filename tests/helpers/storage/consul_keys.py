"""The keys and values of a store in Consul, read with Python's own HTTP client."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from urllib.parse import quote

from groupkeeper.storage.backends.journal.stored import entry_of, parts_of_entry
from groupkeeper.storage.backends.key_value.event_chunks import events_of
from groupkeeper.storage.codec.records import decode_payload, payload_events
from groupkeeper.storage.segment_lines import EventDict


def ask(address: str, key: str, query: str = "", method: str = "GET", body: bytes = b"") -> bytes:
    """Return the answer about a key: empty if there is no such key."""
    url = f"http://{address}/v1/kv/{quote(key)}{query}"
    request = urllib.request.Request(url, data=body if method == "PUT" else None, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return b""


def keys_below(address: str, prefix: str) -> list[str]:
    """Return the keys that begin with a prefix, without this prefix."""
    found = json.loads(ask(address, prefix, "?keys&consistent") or b"[]")
    return [key.removeprefix(prefix) for key in found]


def values_below(address: str, prefix: str) -> dict[str, bytes]:
    """Return the values of all keys that begin with a prefix."""
    found = json.loads(ask(address, prefix, "?recurse&consistent") or b"[]")
    return {each["Key"]: base64.b64decode(each["Value"] or "") for each in found}


def stored_events(address: str, prefix: str) -> list[EventDict]:
    """Return all events, those of the log and those in journals, each once."""
    found: dict[tuple[str, int], EventDict] = {}
    # before the log of events: a fold may move entries to it between the two reads
    entries = values_below(address, f"{prefix}/journal/")
    for key in [key for key in entries if "." not in key]:
        rest = [entries[f"{key}.{part}"] for part in range(1, parts_of_entry(entries[key]))]
        entry = entry_of(1, [entries[key], *rest])
        for event in payload_events(entry.first_seq, decode_payload(entry.payload)):
            found.setdefault((event["log_id"], event["seq"]), event)
    for _, chunk in sorted(values_below(address, f"{prefix}/events/").items()):
        for event in events_of(chunk):
            found.setdefault((event["log_id"], event["seq"]), event)
    return sorted(found.values(), key=lambda event: event["seq"])
