"""What a server for tests refuses at the door: wrong arguments, calls after the end."""

from __future__ import annotations

import gc
import inspect
from typing import Any

import pytest

from groupkeeper.coordinator.testkit.faults import MAX_MS
from groupkeeper.coordinator.testkit.server import (
    GroupkeeperServer,
    ServerOptions,
    SyncGroupkeeperServer,
)

NOT_WHOLE = "must be a whole number, not"
NO_STRING = "must be a string, not"

REFUSED: tuple[tuple[str, tuple[Any, ...], type[Exception], str], ...] = (
    ("advance", (0.5,), TypeError, f"ms {NOT_WHOLE} 0.5"),
    ("advance", (True,), TypeError, f"ms {NOT_WHOLE} True"),
    ("advance", ("1000",), TypeError, f"ms {NOT_WHOLE} '1000'"),
    ("advance", (-1,), ValueError, "ms must be at least 0, not -1"),
    ("advance", (MAX_MS + 1,), ValueError, f"ms must be at most {MAX_MS}, not {MAX_MS + 1}"),
    ("fail_storage", (1.5,), TypeError, f"appends {NOT_WHOLE} 1.5"),
    ("fail_storage", (0,), ValueError, "appends must be at least 1, not 0"),
    ("delay", (8, 5), TypeError, f"api {NO_STRING} 8"),
    ("delay", ("OffsetCommit", 0.5), TypeError, f"ms {NOT_WHOLE} 0.5"),
    ("delay", ("OffsetCommit", -1), ValueError, "ms must be at least 0, not -1"),
    ("delay", ("OffsetCommit", 10**18), ValueError, f"ms must be at most {MAX_MS}, not 10{{18}}"),
    ("evict", ("g", None), TypeError, f"member {NO_STRING} None"),
    ("evict", (7, "m"), TypeError, f"group {NO_STRING} 7"),
    ("create_topic", ("orders", 1.5), TypeError, f"partitions {NOT_WHOLE} 1.5"),
    ("create_topic", ("orders", 0), ValueError, "partitions must be at least 1, not 0"),
    ("create_topic", (b"orders", 1), TypeError, f"name {NO_STRING} b'orders'"),
    ("commit", ("g", {("orders", 0): 7.0}), TypeError, f"the offset of orders 0 {NOT_WHOLE} 7.0"),
    ("commit", ("g", {("orders", 0): 2**63}), ValueError, "the offset of orders 0 must be at most"),
    ("commit", ("g", {("orders", "0"): 7}), TypeError, f"partition {NOT_WHOLE} '0'"),
    (
        "commit",
        ("g", None),
        TypeError,
        r"offsets must be .*: offset\}, not None",
    ),
    ("commit", ("g", {("o",): 1}), TypeError, r"must be \(topic, partition\), not \('o',\)"),
    ("commit", ("g", {"ab": 1}), TypeError, r"must be \(topic, partition\), not 'ab'"),
    (
        "commit",
        (7, {("orders", 0): 7}),
        TypeError,
        "OffsetCommitRequest.group_id: Expected `str`, got `int`: 7",
    ),
)

CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("advance", (1,)),
    ("evict", ("g", "m")),
    ("fail_storage", ()),
    ("delay", ("OffsetCommit", 1)),
    ("create_topic", ("orders", 1)),
    ("commit", ("g", {("orders", 0): 1})),
    ("committed", ("g",)),
    ("events", ("g",)),
    ("restart", ()),
)


@pytest.mark.parametrize(("call", "arguments", "error", "message"), REFUSED)
def test_a_wrong_argument_is_told_with_what_may_be_given(
    groupkeeper, call, arguments, error, message
):
    with pytest.raises(error, match=message):
        getattr(groupkeeper, call)(*arguments)


@pytest.mark.parametrize(("call", "arguments", "error", "message"), REFUSED)
async def test_a_wrong_argument_is_told_in_a_loop_too(call, arguments, error, message):
    async with GroupkeeperServer() as server:
        with pytest.raises(error, match=message):
            await called(server, call, arguments)


@pytest.mark.parametrize(("call", "arguments"), CALLS)
def test_a_call_after_the_end_says_that_the_server_does_not_run(call, arguments):
    """A coroutine that nobody awaits would be a warning, and warnings are errors here."""
    with SyncGroupkeeperServer() as server:
        pass
    with pytest.raises(RuntimeError, match="the server is not running"):
        getattr(server, call)(*arguments)
    gc.collect()


@pytest.mark.parametrize(("call", "arguments"), CALLS)
async def test_a_call_after_the_end_says_so_in_a_loop_too(call, arguments):
    async with GroupkeeperServer() as server:
        pass
    with pytest.raises(RuntimeError, match="the server is not running"):
        await called(server, call, arguments)


@pytest.mark.parametrize("kind", [GroupkeeperServer, SyncGroupkeeperServer])
def test_there_is_no_port_before_the_start(kind):
    with pytest.raises(RuntimeError, match="the server is not running"):
        _ = kind().bootstrap


@pytest.mark.parametrize("kind", [GroupkeeperServer, SyncGroupkeeperServer])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"topics": ["orders"]},
            TypeError,
            r"topics must map names .*, not \['orders'\]",
        ),
        (
            {"topics": "orders"},
            TypeError,
            "topics must map names to .*, not 'orders'",
        ),
        ({"min_session_timeout_ms": 1.5}, TypeError, f"min_session_timeout_ms {NOT_WHOLE} 1.5"),
        ({"min_session_timeout_ms": "100"}, TypeError, f"min_session_timeout_ms {NOT_WHOLE} '100'"),
        ({"min_session_timeout_ms": 1}, ValueError, "min_session_timeout_ms must be at least 2"),
        ({"node_id": "x"}, TypeError, f"node_id {NOT_WHOLE} 'x'"),
        ({"num_partitions": "3"}, TypeError, f"num_partitions {NOT_WHOLE} '3'"),
        ({"num_partitions": 0}, ValueError, "num_partitions must be at least 1, not 0"),
        ({"auto_create_topics": "no"}, TypeError, "auto_create_topics must be a bool, not 'no'"),
        ({"cluster_id": 7}, TypeError, f"cluster_id {NO_STRING} 7"),
        ({"host": None}, TypeError, f"host {NO_STRING} None"),
        ({"host": ""}, ValueError, "host must not be empty"),
        ({"cluster_id": ""}, ValueError, "cluster_id must not be empty"),
        ({"port": 65_536}, ValueError, "port must be at most 65535, not 65536"),
    ],
)
def test_options_that_cannot_work_are_told_by_their_names(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(**options)


def test_a_number_of_partitions_that_is_a_text_is_told_when_the_server_starts():
    """It was tried for ever, and the test hung."""
    server = SyncGroupkeeperServer(topics={"orders": "12"})
    with pytest.raises(TypeError, match=f"the partitions of orders {NOT_WHOLE} '12'"):
        server.start()


@pytest.mark.parametrize("wrong", [None, "no", 1])
def test_whether_all_heartbeat_is_yes_or_no(groupkeeper, wrong):
    with pytest.raises(TypeError, match=f"heartbeats must be a bool, not {wrong!r}"):
        groupkeeper.advance(1, heartbeats=wrong)


class TestOfAFolderWhoseOptionsAreNone:
    """Its ``groupkeeper_options`` returns what has no names."""

    @pytest.fixture
    def groupkeeper_options(self, wrong):
        return wrong

    @pytest.mark.parametrize("wrong", [None, ServerOptions(), "orders"])
    def test_it_is_told_how_options_are_returned(self, wrong, request):
        problem = "the fixture groupkeeper_options must return a mapping of options, such as"
        with pytest.raises(TypeError, match=problem):
            request.getfixturevalue("groupkeeper")


def test_a_second_start_is_refused_and_the_server_goes_on(groupkeeper):
    with pytest.raises(RuntimeError, match="started twice"):
        groupkeeper.start()
    assert groupkeeper.committed("g") == {}


async def called(server: GroupkeeperServer, call: str, arguments: tuple[Any, ...]) -> None:
    """Call it, and await what is to be awaited."""
    result = getattr(server, call)(*arguments)
    if inspect.isawaitable(result):
        await result
