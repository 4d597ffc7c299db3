"""What a store in ZooKeeper writes into nodes: names, URLs, entries and chunks of events."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.storage.backends.journal.driver import JournalEntry, LoggedEvent
from groupkeeper.storage.backends.journal.stored import entry_of, entry_parts, parts_of_entry
from groupkeeper.storage.backends.key_value.escaping import plain_name
from groupkeeper.storage.backends.key_value.event_chunks import (
    CHUNK_BYTES,
    MAX_CHUNKS,
    EventChunks,
    events_of,
)
from groupkeeper.storage.backends.zookeeper.names import node_name
from groupkeeper.storage.backends.zookeeper.nodes import PART_BYTES, StoreNodes, is_entry, row_of
from groupkeeper.storage.backends.zookeeper.url import parse_url
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.segment_lines import encode_line
from tests.helpers.runtime.virtual_loop import turns

REFUSED = re.compile("[\x00-\x1f/\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


@pytest.mark.parametrize("name", ["billing", "a.b-c_d", "é", "über uns", "orders:1"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert node_name(name) == name


@given(st.text())
def test_every_name_comes_back_from_a_name_that_a_node_may_have(name: str) -> None:
    node = node_name(name)
    assert plain_name(node) == name
    assert node not in ("", ".", "..")
    assert not REFUSED.search(node)


@given(st.text(alphabet="%2Ea./", max_size=6), st.text(alphabet="%2Ea./", max_size=6))
def test_no_two_names_have_the_same_node(one: str, other: str) -> None:
    assert (node_name(one) == node_name(other)) == (one == other)


def test_a_url_names_servers_chroot_user_and_files() -> None:
    url = parse_url(
        "zookeeper://me:x%40y@a:2181,b/chroot/c?mirror=off&ca_file=/ca.pem", {"OTHER": "1"}
    )
    assert (url.address.hosts, url.address.chroot) == (("a:2181", "b:2181"), "/chroot/c")
    assert url.name == "zookeeper://a:2181,b:2181/chroot/c"
    assert (url.digest, url.has_mirror) == ("me:x@y", False)
    assert url.tls is not None
    assert url.tls.ca_file == Path("/ca.pem")


def test_a_url_of_servers_alone_is_enough() -> None:
    url = parse_url("zookeeper://a", {})
    assert (url.address.chroot, url.digest, url.has_mirror, url.tls) == ("", None, True, None)


def test_the_password_comes_from_the_environment() -> None:
    url = parse_url("zookeeper://me@a", {"ZOOKEEPER_PASSWORD": "secret"})
    assert url.digest == "me:secret"
    with pytest.raises(ValueError, match="set ZOOKEEPER_PASSWORD to the password of user 'me'"):
        _ = parse_url("zookeeper://me@a", {}).digest


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("zookeeper://", "is not HOST:PORT"),
        ("zookeeper://a/x//y", "without empty"),
        ("zookeeper://a?mirrors=off", "'mirrors' is not known; use mirror, tls"),
        ("zookeeper://a?mirror=no", "mirror is 'no'; use on or off"),
        ("consul://a", "use zookeeper://"),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_right(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_url(url, {})


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_an_entry_of_any_size_comes_back_from_its_parts(size: int) -> None:
    entry = JournalEntry(7, 12, 3, "log", 1_700_000_000_000, b"{\n" * (size // 2))
    parts = entry_parts(entry, PART_BYTES)
    assert max(map(len, parts)) < 1024 * 1024 - 4096
    assert parts_of_entry(parts[0]) == len(parts)
    assert entry_of(7, parts) == entry


def test_the_parts_of_an_entry_are_beside_it() -> None:
    nodes = StoreNodes("/groupkeeper")
    names = [nodes.entry("life", 12, part).rpartition("/")[2] for part in range(3)]
    assert [(row_of(name), is_entry(name)) for name in names] == [
        (12, True),
        (12, False),
        (12, False),
    ]


def test_an_entry_that_is_damaged_is_no_crash() -> None:
    with pytest.raises(StorageError, match="an entry of the journal cannot be read"):
        entry_of(1, [b"{"])


def logged(seq: int, size: int = 10) -> LoggedEvent:
    event = {
        "kind": "group_created",
        "group": "g",
        "seq": seq,
        "ts_ms": seq,
        "log_id": "log",
        "shard": 0,
        "lease_epoch": 1,
        "schema_version": 2,
        "x": f"{seq * 7919:0{size}}",
    }
    return LoggedEvent("log", seq, seq, ("g", encode_line(event)))


def test_events_are_added_to_the_newest_chunk_until_it_is_full() -> None:
    chunks = EventChunks([])
    ((first, one),) = chunks.add([logged(1)])
    ((again, two),) = chunks.add([logged(2), logged(3)])
    assert first == again
    assert one is not None
    assert two is not None
    assert [event["seq"] for event in events_of(two)] == [1, 2, 3]
    assert two.startswith(one)
    chunks.add([logged(seq) for seq in range(4, 4_000)])
    names = set()
    for seq in range(4_000, 4_200):
        ((name, data),) = chunks.add([logged(seq, size=4_000)])
        assert data is not None
        assert len(data) < 2 * CHUNK_BYTES
        names.add(name)
    assert names - {first}


async def test_the_loop_turns_while_many_events_are_compressed() -> None:
    counted = []

    async def turn() -> None:
        while True:
            counted.append(1)
            await turns()

    turning = asyncio.create_task(turn())
    events = [logged(seq, size=100_000) for seq in range(30)]
    written = await EventChunks([]).add_in_turns(events)
    turning.cancel()
    assert len(counted) >= 4
    assert [event["seq"] for _, data in written for event in events_of(data or b"")] == [*range(30)]


def test_a_new_process_begins_a_chunk_of_its_own() -> None:
    chunks = EventChunks([])
    ((first, _),) = chunks.add([logged(1)])
    ((second, _),) = EventChunks([first]).add([logged(1)])
    assert first != second


def test_the_oldest_chunks_go_when_there_are_too_many() -> None:
    names = [f"{number:015d}-{number:020d}-x" for number in range(MAX_CHUNKS)]
    writes = EventChunks(names).add([logged(1_000_000)])
    assert writes[1:] == [(names[0], None)]


def test_a_chunk_is_old_when_the_next_one_begins_before_the_time() -> None:
    names = [f"{ts_ms:015d}-{0:020d}-x" for ts_ms in (10, 20, 30)]
    chunks = EventChunks(names)
    assert chunks.older_than(20) == []
    assert chunks.older_than(21) == names[:1]
    assert chunks.older_than(1_000) == names[:2]
    chunks.forget(names[:1])
    assert chunks.older_than(1_000) == names[1:2]
