"""The server in the process of a test: what other people's tests stand on."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from groupkeeper.coordinator.testkit.server import (
    GroupkeeperServer,
    SyncGroupkeeperServer,
    TestingError,
)
from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.wire.raw_client import RawClient

COMMAND_LINE = ("typer", "click", "groupkeeper.coordinator.cli", "pydantic", "uvloop")
HTTP = (
    "groupkeeper.coordinator.web",
    "http.client",
    "http.server",
    "prometheus_client",
    "starlette",
    "urllib.request",
    "uvicorn",
    "wsgiref.simple_server",
)
NOT_FOR_TESTS = (*COMMAND_LINE, *HTTP)
"""What the daemon and its settings file need, and nobody's tests."""

FRESH = f"""
import sys
from groupkeeper.coordinator.testkit.server import SyncGroupkeeperServer
with SyncGroupkeeperServer(topics={{"orders": 1}}) as server:
    server.commit("g", {{("orders", 0): 1}})
    assert server.committed("g") == {{("orders", 0): 1}}
found = [name for name in {NOT_FOR_TESTS!r} if name in sys.modules]
assert not found, found
"""


def metadata(port: int) -> dict[str, int]:
    with RawClient(port) as client:
        reply = client.call("metadata", 1, topics=None)
    return {topic["name"]: len(topic["partitions"]) for topic in reply["topics"]}


def test_nothing_of_the_command_line_or_http_is_imported_and_nothing_printed():
    done = subprocess.run(
        [sys.executable, "-c", FRESH], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_after_the_with_block_there_is_no_thread_of_ours():
    before = set(threading.enumerate())
    with SyncGroupkeeperServer(topics={"orders": 1}) as server:
        assert metadata(server.port) == {"orders": 1}
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before


async def test_a_stop_closes_the_connections_and_frees_the_port():
    server = GroupkeeperServer(topics={"orders": 1})
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await asyncio.to_thread(metadata, server.port)  # by now the first one is accepted too
    await server.stop()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    async with GroupkeeperServer(port=server.port, topics={"others": 1}) as next_one:
        assert await asyncio.to_thread(metadata, next_one.port) == {"others": 1}


async def test_in_a_running_loop_it_answers_on_its_own_port():
    async with GroupkeeperServer(topics={"orders": 12}) as server:
        assert server.bootstrap == f"127.0.0.1:{server.port}"
        assert await asyncio.to_thread(metadata, server.port) == {"orders": 12}


async def test_two_servers_know_nothing_of_each_other():
    async with (
        GroupkeeperServer(topics={"a": 1}) as one,
        GroupkeeperServer(topics={"a": 1}) as other,
    ):
        await one.commit("g", {("a", 0): 7})
        assert await one.committed("g") == {("a", 0): 7}
        assert await other.committed("g") == {}


def test_the_twin_for_tests_without_a_loop_answers_as_well():
    with SyncGroupkeeperServer(topics={"orders": 3}) as server:
        assert metadata(server.port) == {"orders": 3}


def test_a_restart_keeps_port_topics_and_offsets():
    with SyncGroupkeeperServer(topics={"orders": 3}) as server:
        port = server.port
        server.create_topic("more", 2)
        server.commit("g", {("more", 1): 5})
        server.restart()
        assert server.port == port
        assert metadata(port) == {"orders": 3, "more": 2}
        assert server.committed("g") == {("more", 1): 5}


def test_it_can_be_started_again_after_a_stop():
    server = SyncGroupkeeperServer(topics={"orders": 1})
    for _ in range(2):
        server.start()
        assert metadata(server.port) == {"orders": 1}
        server.stop()


def test_a_port_in_use_is_the_callers_error_and_leaves_no_thread_behind():
    with SyncGroupkeeperServer() as first:
        before = set(threading.enumerate())
        second = SyncGroupkeeperServer(port=first.port)
        with pytest.raises(OSError, match="in use"):
            second.start()
        assert set(threading.enumerate()) == before
        second.stop()


def test_topics_are_made_and_grown(groupkeeper):
    groupkeeper.create_topic("orders", 2)
    groupkeeper.create_topic("orders", 4)
    assert metadata(groupkeeper.port) == {"orders": 4}
    with pytest.raises(TestingError, match="INVALID_PARTITIONS"):
        groupkeeper.create_topic("orders", 1)


def test_a_commit_to_a_topic_that_is_not_there_is_refused(groupkeeper):
    with pytest.raises(TestingError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        groupkeeper.commit("g", {("nowhere", 0): 1})


@pytest.mark.groupkeeper(topics={"orders": 5}, min_session_timeout_ms=100)
def test_the_marker_sets_the_options_of_the_fixture(groupkeeper):
    assert metadata(groupkeeper.port) == {"orders": 5}
    with RawClient(groupkeeper.port) as client:
        reply = join(client, 100)
        assert reply["error_code"] == 79  # MEMBER_ID_REQUIRED: the timeout itself was accepted
        assert join(client, 99)["error_code"] == 26  # INVALID_SESSION_TIMEOUT


@pytest.mark.groupkeeper({"orders": 5})
def test_the_topics_of_the_marker_need_no_name_as_those_of_a_server_need_none(groupkeeper):
    assert metadata(groupkeeper.port) == {"orders": 5}


def test_an_ipv6_address_stands_in_brackets_before_its_port():
    with SyncGroupkeeperServer(host="::1") as server:
        assert server.bootstrap == f"[::1]:{server.port}"


def test_a_stop_beside_a_stop_waits_for_it():
    server = SyncGroupkeeperServer()
    server.start()
    is_held, may_end = threading.Event(), threading.Event()

    def hold_the_loop() -> None:
        is_held.set()
        may_end.wait()

    def stop() -> list[str]:
        """What still runs when it returns."""
        server.stop()
        return [thread.name for thread in threading.enumerate() if thread.name == "groupkeeper"]

    with ThreadPoolExecutor(3) as pool:
        held = pool.submit(server._thread.call, hold_the_loop)
        is_held.wait()
        stops = [pool.submit(stop), pool.submit(stop)]
        early, _ = wait(stops, timeout=0.2)  # only a stop that does not wait is done by then
        may_end.set()
        assert not early
        assert [stopped.result() for stopped in stops] == [[], []]
        held.exception()


def join(client: RawClient, session_ms: int):
    protocols = [{"name": "range", "metadata": b""}]
    return client.call(
        "join_group",
        5,
        group_id="g",
        session_timeout=session_ms,
        rebalance_timeout=1000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )


@pytest.mark.groupkeeper(topics={"orders": 1, "of-the-class": 1}, min_session_timeout_ms=100)
class TestOfAClassWithAMarker:
    """Its marker holds for its tests, and theirs win."""

    def test_a_test_without_a_marker_has_the_one_of_its_class(self, groupkeeper):
        assert metadata(groupkeeper.port) == {"orders": 1, "of-the-class": 1}

    @pytest.mark.groupkeeper(topics={"orders": 5})
    def test_its_own_marker_wins(self, groupkeeper):
        assert metadata(groupkeeper.port) == {"orders": 5}
        with RawClient(groupkeeper.port) as client:
            assert join(client, 100)["error_code"] == 79  # of the class: the timeout was accepted


@pytest.mark.groupkeeper(auto_create_topics=True, num_partitions=3)
def test_topics_make_themselves_where_that_is_asked_for(groupkeeper):
    with RawClient(groupkeeper.port) as client:
        client.call("metadata", 4, topics=[{"name": "anything"}], allow_auto_topic_creation=True)
    assert metadata(groupkeeper.port) == {"anything": 3}


def test_an_option_that_does_not_exist_is_a_type_error():
    with pytest.raises(TypeError, match="min_sesion_timeout_ms"):
        SyncGroupkeeperServer(min_sesion_timeout_ms=1)


async def test_a_port_that_is_taken_is_told_and_leaves_nothing_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = GroupkeeperServer(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await server.start()
        with pytest.raises(RuntimeError):
            await server.committed("g")
    async with server:  # it may be started once the port is free
        assert await server.committed("g") == {}
