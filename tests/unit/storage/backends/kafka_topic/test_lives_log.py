"""The order of one partition decides which lives go on."""

from __future__ import annotations

import pytest

from groupkeeper.storage.backends.kafka_topic.lives_log import (
    LivesLog,
    end_message,
    life_message,
    store_message,
)
from groupkeeper.storage.base import StorageError, StoreIdentity
from groupkeeper.storage.leases.lives import NodeLife

Messages = list[tuple[bytes, bytes]]


def beat(life_id: str, counter: int, read_to: int = 0, shards: tuple[int, ...] = ()):
    return life_message(NodeLife(1, life_id, "host:1", counter), read_to, shards)


def test_the_name_of_the_store_is_that_of_the_lives_that_went_on():
    named = life_message(NodeLife(1, "a", "host:1", 1), 0, (), "s")
    refused = life_message(NodeLife(2, "b", "host:2", 1), 0, (), "other")
    assert read([beat("old", 1), end_message("old", 1), named, refused]).store == "s"
    downgraded = [named, end_message("a", 1), beat("c", 1, 2)]
    assert read(downgraded).store == "s", "messages of an older version have no name"
    assert read(downgraded, newest(downgraded)).store == "s"


def read(messages: Messages, kept: set[int] | None = None) -> LivesLog:
    """Read a log. ``kept`` has the offsets that compaction has left."""
    log = LivesLog()
    for offset, (key, value) in enumerate(messages):
        if kept is None or offset in kept:
            log.apply(offset, key, value)
    return log


def newest(messages: Messages) -> set[int]:
    """The offsets that compaction leaves."""
    return {*{key: offset for offset, (key, _) in enumerate(messages)}.values()}


def living(log: LivesLog) -> list[str]:
    return [life.life_id for life in log.living()]


def test_a_beat_before_the_end_keeps_the_life():
    assert living(read([beat("a", 1), beat("a", 2), end_message("a", 1)])) == ["a"]


def test_a_beat_after_the_end_is_too_late():
    log = read([beat("a", 1), end_message("a", 1), beat("a", 2)])
    assert living(log) == []
    assert not log.goes_on("a")


def test_only_one_life_begins():
    log = read([beat("a", 1), beat("b", 1), beat("b", 2)])
    assert living(log) == ["a"]
    assert living(read([beat("a", 1), end_message("a", 1), beat("b", 1)])) == ["b"]


def test_a_message_that_was_sent_twice_changes_nothing():
    messages = [beat("a", 1), beat("a", 1), end_message("a", 1), end_message("a", 1)]
    assert living(read(messages[:2])) == ["a"]
    assert living(read(messages)) == []


def test_the_epoch_of_a_shard_is_the_offset_of_its_acquire():
    log = read([beat("a", 1), beat("a", 2, 0, (-1, 0)), beat("a", 3, 0, (0,))])
    assert log.owners == {-1: ("a", 1), 0: ("a", 2)}


def test_a_life_that_ended_acquires_nothing():
    log = read([beat("a", 1), end_message("a", 1), beat("b", 1, 0, (0,)), beat("a", 2, 0, (0,))])
    assert log.owners == {0: ("b", 2)}


@pytest.mark.parametrize(
    "messages",
    [
        [beat("a", 1), beat("a", 2), end_message("a", 1), beat("a", 3, read_to=3)],
        [beat("a", 1), end_message("a", 1), beat("a", 2, read_to=0)],
        [beat("a", 1), beat("a", 2), end_message("a", 2), end_message("a", 1)],
        [beat("a", 1), beat("a", 2), end_message("a", 1), end_message("a", 2)],
        [beat("a", 1), end_message("a", 1), beat("b", 1), beat("a", 2), beat("b", 2)],
    ],
)
def test_compaction_changes_no_decision(messages: Messages):
    assert living(read(messages, newest(messages))) == living(read(messages))


def test_the_first_identity_stays():
    one, two = StoreIdentity("one", 4), StoreIdentity("two", 5)
    assert read([store_message(one), store_message(two)]).identity == one


def test_a_damaged_message_is_an_error():
    with pytest.raises(StorageError, match="message 3 cannot be read"):
        LivesLog().apply(3, b"life/x", b"{}")
    LivesLog().apply(3, b"another key", b"{}")
