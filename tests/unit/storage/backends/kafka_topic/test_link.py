"""Requests that are sent again, and batches that are written and read."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from aiokafka.errors import (
    KafkaConnectionError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)

from groupkeeper.storage.backends.kafka_topic import link as link_module
from groupkeeper.storage.backends.kafka_topic.link import Fence, Fenced, KafkaLink
from groupkeeper.storage.base import StorageError, StoreBusy
from tests.helpers.runtime.virtual_loop import turns, virtual_time

FENCE = Fence("t-0", 7, 3)
PLACE = TopicPartition("t", 0)
NOT_LEADER, FENCED, DUPLICATE, CONCURRENT, NOT_COORDINATOR = 6, 47, 46, 51, 16
TIMED_OUT, LOADING, NOT_AVAILABLE, NOT_ALLOWED = 7, 14, 15, 53


class Broker:
    """A client of aiokafka whose answers are given. An answer is an error, or an error code."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = [*answers]
        self.lookups = 0
        self.cluster = SimpleNamespace(leader_for_partition=lambda place: 1)

    def force_metadata_update(self) -> None: ...

    async def coordinator_lookup(self, kind: object, name: str) -> int:
        self.lookups += 1
        return 1

    async def send(self, node: int, request: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        topics = [("t", [(0, answer, 42)])]
        errors = [("t", [(0, answer)])]
        return SimpleNamespace(
            error_code=answer, topics=topics, errors=errors, producer_id=7, producer_epoch=3
        )


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_FIRST_RETRY_S", 0)
    monkeypatch.setattr(link_module, "_RETRY_S", 0)


def a_link(*answers: int | Exception) -> tuple[KafkaLink, Broker]:
    link = KafkaLink({"request_timeout_ms": 1_000}, "kafka://a/t", Counter())
    broker = Broker(*answers)
    link._client = broker  # type: ignore[assignment]
    return link, broker


async def test_a_transaction_that_still_ends_is_waited_for():
    link, broker = a_link(CONCURRENT, CONCURRENT, 0)
    await link.begin(FENCE, {"t": 0})
    assert (broker.answers, broker.lookups) == ([], 1)


async def test_a_new_coordinator_is_looked_up():
    link, broker = a_link(NOT_COORDINATOR, 0)
    assert await link.fence("t-0", 1_000) == FENCE
    assert broker.lookups == 2


async def test_a_batch_that_is_there_already_counts_as_sent():
    link, broker = a_link(KafkaConnectionError(), NOT_LEADER, DUPLICATE)
    assert await link.send(FENCE, "t", 0, [(b"k", b"v"), (b"l", None)], 5) == 7
    assert broker.answers == []


@pytest.mark.parametrize("before", [(), (CONCURRENT,), (LOADING, NOT_COORDINATOR)])
async def test_an_older_writer_is_fenced(before: tuple[int, ...]):
    link, _ = a_link(*before, FENCED)
    with pytest.raises(Fenced):
        await link.commit(FENCE)


@pytest.mark.parametrize("before", [KafkaConnectionError(), NOT_AVAILABLE, TIMED_OUT])
async def test_a_commit_that_may_have_succeeded_is_not_called_fenced(before: int | Exception):
    """A coordinator also answers so if it has written the commit, and its replicas are late."""
    link, _ = a_link(before, FENCED)
    with pytest.raises(StorageError) as failure:
        await link.commit(FENCE)
    assert not isinstance(failure.value, Fenced)


async def test_an_error_that_no_retry_can_solve_is_told():
    link, _ = a_link(TopicAuthorizationFailedError("t"))
    with pytest.raises(StorageError, match="kafka://a/t: TopicAuthorizationFailedError"):
        await link.write("t", 0, (b"k", b"v"))


@virtual_time
@pytest.mark.parametrize("answer", [RequestTimedOutError(), NOT_AVAILABLE])
async def test_a_call_without_an_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, answer: int | Exception
):
    monkeypatch.setattr(link_module, "_RETRY_S", 0.02)
    link, _ = a_link(*[answer] * 1_000)
    words = r"kafka://a/t: write: no answer from the brokers within 3\.0 s"
    with pytest.raises(StoreBusy, match=words):
        await link.write("t", 0, (b"k", b"v"))


async def test_a_missing_right_is_named_with_all_that_are_needed():
    link, _ = a_link(NOT_ALLOWED)
    words = "commit: TransactionalIdAuthorizationFailed: give the user Read.*begin with 't-'"
    with pytest.raises(StorageError, match=words):
        await link.commit(FENCE)


async def test_what_is_written_alone_has_an_offset():
    link, _ = a_link(0)
    assert await link.write("t", 0, (b"k", b"v")) == 42


async def test_messages_come_back_from_their_batch():
    messages = [(b"a", b"1"), (b"b", None), (b"", b"x")]
    ((batch, count),) = link_module._batches(FENCE, messages, 0)
    found, position = await link_module._unpack(PLACE, 0, batch, [], READ_COMMITTED)
    assert [(each.offset, each.key, each.value) for each in found] == [
        (0, b"a", b"1"),
        (1, b"b", None),
        (2, b"", b"x"),
    ]
    assert (count, position) == (3, 3)


@pytest.mark.parametrize(("level", "count"), [(READ_COMMITTED, 0), (READ_UNCOMMITTED, 1)])
async def test_aborted_messages_are_left_out(level: int, count: int):
    ((batch, _),) = link_module._batches(FENCE, [(b"a", b"1")], 0)
    found, position = await link_module._unpack(PLACE, 0, batch, [(7, 0)], level)
    assert (len(found), position) == (count, 1)


async def test_many_messages_are_several_batches_in_order():
    large = b"x" * (link_module.BATCH_BYTES // 2)
    messages = [(b"%d" % n, large) for n in range(4)] + [(b"huge", large * 5), (b"z", b"")]
    batches = [*link_module._batches(FENCE, messages, 0)]
    assert len(batches) > 2
    assert sum(count for _, count in batches) == len(messages)
    keys = []
    for batch, _ in batches:
        found, _ = await link_module._unpack(PLACE, 0, batch, [], 0)
        keys += [each.key for each in found]
    assert keys == [key for key, _ in messages]


@pytest.mark.parametrize(
    "answer",
    [
        (0, 0, 9, 8, [(7, 0)], b"x"),
        (0, 0, 9, 8, 0, [(7, 0)], b"x"),
        (0, 0, 9, 8, 0, [(7, 0)], -1, b"x"),
    ],
    ids=["version 4", "version 5", "version 11"],
)
def test_answers_of_all_versions_are_read(answer: tuple[Any, ...]):
    assert link_module._fetched(answer) == (9, [(7, 0)], b"x")


async def test_an_empty_partition_is_read():
    assert await link_module._unpack(PLACE, 0, b"", None, READ_COMMITTED) == ([], 0)


async def test_other_work_goes_on_while_messages_are_unpacked():
    messages = [(b"%d" % n, b"") for n in range(4 * link_module.MESSAGES_A_TURN)]
    ((batch, _),) = link_module._batches(FENCE, messages, 0)
    unpacking = asyncio.ensure_future(link_module._unpack(PLACE, 0, batch, [], READ_COMMITTED))
    passed = 0
    while not unpacking.done():
        passed += 1
        await turns()
    assert passed >= 4
    assert len((await unpacking)[0]) == len(messages)
