"""Faults that other people's tests ask for: time, a failing storage, evictions, late answers."""

from __future__ import annotations

import asyncio
import select
import struct
from typing import Any

import pytest

from groupkeeper.coordinator.testkit.server import (
    GroupkeeperServer,
    SyncGroupkeeperServer,
    TestingError,
)
from tests.helpers.wire.raw_client import RawClient

SESSION_MS = 10_000
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
COORDINATOR_LOAD_IN_PROGRESS = 14
DAY_MS = 24 * 3600 * 1000

pytestmark = pytest.mark.groupkeeper(topics={"orders": 4})


class Member:
    """A raw client that heartbeats only when it is told to."""

    def __init__(self, server: SyncGroupkeeperServer, client_id: str = "app", **join: Any) -> None:
        self._server = server
        self.client = RawClient(server.port, client_id=client_id)
        self._fields = {"session_timeout": SESSION_MS, "rebalance_timeout": 60_000, **join}
        self.member_id = ""
        self.generation_id = -1

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def reconnect(self) -> None:
        """Go on over a new connection: the server was restarted."""
        self.client.close()
        self.client = RawClient(self._server.port)

    def send_join(self) -> int:
        return self.client.send(
            "join_group",
            9,
            group_id="g",
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
            **self._fields,
        )

    def joined(self, correlation_id: int) -> dict[str, Any]:
        reply = self.client.receive("join_group", 9, correlation_id)
        self.member_id, self.generation_id = reply["member_id"], reply["generation_id"]
        return reply

    def join(self) -> None:
        """Join and sync as the only member."""
        if "group_instance_id" not in self._fields:
            self.joined(self.send_join())  # MEMBER_ID_REQUIRED
        assert self.joined(self.send_join())["error_code"] == 0
        self.sync()

    def sync(self) -> None:
        assignments = [{"member_id": self.member_id, "assignment": b"all"}]
        reply = self._call("sync_group", 3, assignments=assignments)
        assert reply["error_code"] == 0

    def heartbeat(self) -> int:
        return int(self._call("heartbeat", 4)["error_code"])

    def commit(self, offset: int) -> int:
        reply = self.client.receive("offset_commit", 8, self.send_commit(offset))
        return int(reply["topics"][0]["partitions"][0]["error_code"])

    def send_commit(self, offset: int) -> int:
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        return self.client.send(
            "offset_commit",
            8,
            group_id="g",
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            topics=[{"name": "orders", "partitions": partitions}],
        )

    def _call(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        return self.client.call(
            api,
            version,
            group_id="g",
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self._fields.get("group_instance_id"),
            **values,
        )


def kinds(server: SyncGroupkeeperServer, group: str = "g") -> list[str]:
    return [event["kind"] for event in server.events(group)]


# --- advance --------------------------------------------------------------------------------------


def test_a_session_ends_at_once_and_its_event_is_there_on_return(groupkeeper):
    with Member(groupkeeper) as member:
        member.join()
        groupkeeper.advance(SESSION_MS - 1_000)
        assert member.heartbeat() == 0
        groupkeeper.advance(SESSION_MS - 1_000)
        assert "member_evicted" not in kinds(groupkeeper)
        groupkeeper.advance(1_000)
        (evicted,) = [e for e in groupkeeper.events("g") if e["kind"] == "member_evicted"]
        assert (evicted["member_id"], evicted["reason"]) == (member.member_id, "session_timeout")
        assert member.heartbeat() == UNKNOWN_MEMBER_ID


def test_each_thing_happens_at_its_own_moment(groupkeeper):
    """The session ends after 10 s; whoever does not join again within 60 s is out after 70."""
    with Member(groupkeeper) as one, Member(groupkeeper, session_timeout=1_800_000) as other:
        other.join()
        one.joined(one.send_join())
        joining = one.send_join()
        assert other.heartbeat() == REBALANCE_IN_PROGRESS
        groupkeeper.advance(59_000)
        assert other.heartbeat() == REBALANCE_IN_PROGRESS
        groupkeeper.advance(2_000)
        assert one.joined(joining)["members"] != []
        one.sync()
        assert other.heartbeat() == UNKNOWN_MEMBER_ID
        groupkeeper.advance(100_000)
        evicted = [e for e in groupkeeper.events("g") if e["kind"] == "member_evicted"]
        assert [e["member_id"] for e in evicted] == [other.member_id, one.member_id]
        told_ms = evicted[1]["ts_ms"] - evicted[0]["ts_ms"]
        assert SESSION_MS <= told_ms < 60_000, "not when advance() was called"


def test_with_heartbeats_nobody_is_evicted_and_offsets_expire_all_the_same(groupkeeper):
    groupkeeper.commit("gone", {("orders", 0): 7})
    with Member(groupkeeper) as member:
        member.join()
        groupkeeper.advance(7 * DAY_MS + 3_600_000, heartbeats=True)
        assert member.heartbeat() == 0
    assert groupkeeper.committed("gone") == {}
    assert kinds(groupkeeper, "gone")[-2:] == ["offset_expired", "group_deleted"]


def test_more_offsets_than_one_step_takes_have_all_expired_on_return(groupkeeper):
    groupkeeper.create_topic("wide", 5_000)
    groupkeeper.commit("gone", {("wide", partition): 7 for partition in range(5_000)})
    groupkeeper.advance(8 * DAY_MS)
    assert groupkeeper.committed("gone") == {}


def test_time_that_has_passed_stays_passed_over_a_restart(groupkeeper):
    groupkeeper.commit("g", {("orders", 0): 7})
    before = groupkeeper.events("g")[-1]["ts_ms"]
    groupkeeper.advance(DAY_MS)
    groupkeeper.restart()
    groupkeeper.commit("g", {("orders", 0): 8})
    assert groupkeeper.events("g")[-1]["ts_ms"] - before >= DAY_MS
    groupkeeper.advance(7 * DAY_MS + 3_600_000)
    assert groupkeeper.committed("g") == {}


def test_time_does_not_go_back(groupkeeper):
    with pytest.raises(ValueError, match="ms must be at least 0, not -1"):
        groupkeeper.advance(-1)


# --- evict ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["app", "instance-1", "its member id"])
def test_a_member_is_evicted_by_any_of_its_names(groupkeeper, name):
    with Member(groupkeeper, group_instance_id="instance-1") as member:
        member.join()
        groupkeeper.evict("g", member.member_id if name == "its member id" else name)
        assert kinds(groupkeeper)[-1] in ("member_evicted", "rebalance_end")
        (evicted,) = [e for e in groupkeeper.events("g") if e["kind"] == "member_evicted"]
        assert evicted["reason"] == "session_timeout"
        assert member.heartbeat() == UNKNOWN_MEMBER_ID


def join_both(one: Member, other: Member) -> None:
    """Join one, who is the leader, and then the other, and sync both."""
    one.join()
    other.joined(other.send_join())
    joining = other.send_join()
    one.joined(one.send_join())
    other.joined(joining)
    one.sync()
    other.sync()


def test_an_eviction_tells_the_others_to_rebalance(groupkeeper):
    with Member(groupkeeper, "one") as one, Member(groupkeeper, "other") as other:
        join_both(one, other)
        groupkeeper.evict("g", "other")
        assert one.heartbeat() == REBALANCE_IN_PROGRESS


def test_who_is_evicted_is_back_after_a_restart_before_the_others_have_rebalanced(groupkeeper):
    with Member(groupkeeper, "one") as one, Member(groupkeeper, "other") as other:
        join_both(one, other)
        groupkeeper.evict("g", "other")
        groupkeeper.restart()
        for member in (one, other):
            member.reconnect()
            assert member.heartbeat() == 0
        assert "member_evicted" in kinds(groupkeeper)


def test_who_is_evicted_is_gone_after_a_restart_when_the_others_have_rebalanced(groupkeeper):
    with Member(groupkeeper, "one") as one, Member(groupkeeper, "other") as other:
        join_both(one, other)
        groupkeeper.evict("g", "other")
        one.joined(one.send_join())
        one.sync()
        groupkeeper.restart()
        for member in (one, other):
            member.reconnect()
        assert (one.heartbeat(), other.heartbeat()) == (0, UNKNOWN_MEMBER_ID)


def test_who_is_not_there_or_not_alone_is_told_with_the_members_that_are(groupkeeper):
    with pytest.raises(TestingError, match="no member is called 'app'; its members are: nobody"):
        groupkeeper.evict("g", "app")
    with Member(groupkeeper) as one, Member(groupkeeper) as other:
        one.join()
        other.joined(other.send_join())
        joining = other.send_join()
        one.joined(one.send_join())
        other.joined(joining)
        with pytest.raises(TestingError, match=f"2 members are called 'app'.*{one.member_id}"):
            groupkeeper.evict("g", "app")


# --- fail_storage ---------------------------------------------------------------------------------


def test_nothing_is_written_while_the_storage_fails_and_everything_after(groupkeeper):
    with Member(groupkeeper) as member:
        member.join()
        with groupkeeper.fail_storage():
            assert member.commit(5) == COORDINATOR_LOAD_IN_PROGRESS
            assert groupkeeper.committed("g") == {}
            assert member.commit(6) == COORDINATOR_LOAD_IN_PROGRESS
            assert member.heartbeat() == 0
        groupkeeper.committed("g")  # waits until every shard is loaded
        assert member.commit(7) == 0
    assert groupkeeper.committed("g") == {("orders", 0): 7}
    assert "member_evicted" not in kinds(groupkeeper)


def test_a_number_of_writes_fails_and_no_more(groupkeeper):
    with Member(groupkeeper) as member:
        member.join()
        groupkeeper.fail_storage(appends=2)
        for offset in (1, 2):
            groupkeeper.committed("g")
            assert member.commit(offset) == COORDINATOR_LOAD_IN_PROGRESS
        groupkeeper.committed("g")
        assert member.commit(3) == 0


def test_what_a_test_asks_for_directly_fails_with_kafkas_code_too(groupkeeper):
    with groupkeeper.fail_storage():
        with pytest.raises(TestingError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            groupkeeper.commit("g", {("orders", 0): 1})
        with pytest.raises(TestingError, match="NOT_CONTROLLER"):
            groupkeeper.create_topic("more", 1)
    groupkeeper.commit("g", {("orders", 0): 1})


def test_a_stop_undoes_every_fault(groupkeeper):
    failing, late = groupkeeper.fail_storage(), groupkeeper.delay("Heartbeat", 3_600_000)
    groupkeeper.restart()
    with Member(groupkeeper) as member:
        member.join()
        assert member.heartbeat() == 0
        assert member.commit(1) == 0
    failing.undo()
    late.undo()


def test_faults_may_be_undone_after_the_end(groupkeeper):
    with SyncGroupkeeperServer() as other:
        faults = [other.fail_storage(), other.delay("Heartbeat", 1)]
    for fault in faults:
        fault.undo()


@pytest.mark.parametrize("appends", [0, -1])
def test_no_number_of_writes_below_one_can_fail(groupkeeper, appends):
    with pytest.raises(ValueError, match="at least 1"):
        groupkeeper.fail_storage(appends)


@pytest.mark.parametrize("appends", [None, 1])
def test_time_in_which_something_is_due_that_cannot_be_written_is_refused_as_an_eviction_is(
    groupkeeper, appends
):
    with Member(groupkeeper) as member:
        member.join()
        refused = pytest.raises(TestingError, match=r"NOT_COORDINATOR.*advance\(60000\)")
        with groupkeeper.fail_storage(appends), refused:
            groupkeeper.advance(60_000)
        assert "member_evicted" not in kinds(groupkeeper)
        groupkeeper.advance(60_000)
    assert "member_evicted" in kinds(groupkeeper)


@pytest.mark.parametrize("appends", [None, 1])
def test_an_eviction_of_one_of_two_that_cannot_be_written_is_refused_and_leaves_no_event(
    groupkeeper, appends
):
    """It has no record before the rebalance ends, only events."""
    with Member(groupkeeper, "one") as one, Member(groupkeeper, "other") as other:
        join_both(one, other)
        refused = pytest.raises(TestingError, match=r"NOT_COORDINATOR.*evict\(g, other\)")
        with groupkeeper.fail_storage(appends), refused:
            groupkeeper.evict("g", "other")
        groupkeeper.committed("g")  # waits until every shard is loaded
        assert (one.heartbeat(), other.heartbeat()) == (0, 0)
        assert "member_evicted" not in kinds(groupkeeper)
        groupkeeper.evict("g", "other")
        assert one.heartbeat() == REBALANCE_IN_PROGRESS


def test_a_session_of_one_of_two_that_ends_while_nothing_can_be_written_leaves_no_event(
    groupkeeper,
):
    short = Member(groupkeeper, "other", session_timeout=SESSION_MS // 2)
    with Member(groupkeeper, "one") as one, short as other:
        join_both(one, other)
        before = kinds(groupkeeper)
        refused = pytest.raises(TestingError, match=r"NOT_COORDINATOR.*advance\(6000\)")
        with groupkeeper.fail_storage(), refused:
            groupkeeper.advance(6_000)
        groupkeeper.committed("g")  # waits until every shard is loaded
        assert kinds(groupkeeper) == before
        assert (one.heartbeat(), other.heartbeat()) == (0, 0)


def test_time_in_which_nothing_is_due_passes_while_the_storage_fails(groupkeeper):
    with Member(groupkeeper) as member:
        member.join()
        with groupkeeper.fail_storage():
            groupkeeper.advance(SESSION_MS - 2_000)
        assert member.heartbeat() == 0


# --- delay ----------------------------------------------------------------------------------------


def send_heartbeat(member: Member) -> int:
    return member.client.send(
        "heartbeat", 4, group_id="g", generation_id=member.generation_id, member_id=member.member_id
    )


def has_answer(member: Member) -> bool:
    """Whether bytes have arrived."""
    return bool(select.select([member.client.socket], [], [], 0)[0])


def test_an_answer_comes_when_the_delay_is_undone_and_other_apis_are_not_late(groupkeeper):
    with Member(groupkeeper) as member, RawClient(groupkeeper.port) as beside:
        member.join()
        late = groupkeeper.delay("Heartbeat", 3_600_000)
        waiting = send_heartbeat(member)
        assert beside.call("api_versions", 0)["error_code"] == 0
        assert not has_answer(member)
        late.undo()
        assert member.client.receive("heartbeat", 4, waiting)["error_code"] == 0
        assert member.heartbeat() == 0


def test_an_answer_does_not_wait_for_a_delay_that_is_undone_beside_a_shorter_one(groupkeeper):
    with Member(groupkeeper) as member, RawClient(groupkeeper.port) as beside:
        member.join()
        late = groupkeeper.delay("Heartbeat", 3_600_000)
        with groupkeeper.delay("Heartbeat", 50):
            waiting = send_heartbeat(member)
            assert beside.call("api_versions", 0)["error_code"] == 0
            late.undo()
            assert member.client.receive("heartbeat", 4, waiting)["error_code"] == 0


def test_an_answer_comes_by_itself_after_its_delay(groupkeeper):
    with Member(groupkeeper) as member, groupkeeper.delay("heartbeat", 50):
        member.join()
        assert member.heartbeat() == 0


def test_what_a_delayed_request_does_is_done_at_once(groupkeeper):
    with Member(groupkeeper) as member:
        member.join()
        with groupkeeper.delay("offset_commit", 3_600_000):
            waiting = member.send_commit(5)
            while not groupkeeper.committed("g"):
                pass
            assert groupkeeper.committed("g") == {("orders", 0): 5}
            assert not has_answer(member)
        reply = member.client.receive("offset_commit", 8, waiting)
        assert reply["topics"][0]["partitions"][0]["error_code"] == 0


def test_replies_of_one_connection_stay_in_order_behind_a_late_one(groupkeeper):
    with Member(groupkeeper) as member:
        member.join()
        with groupkeeper.delay("Heartbeat", 50):
            first = send_heartbeat(member)
            second = member.client.send("api_versions", 0)
            assert member.client.receive("heartbeat", 4, first)["error_code"] == 0
            assert member.client.receive("api_versions", 0, second)["error_code"] == 0


def test_an_api_that_is_not_served_is_refused_with_those_that_are(groupkeeper):
    with pytest.raises(ValueError, match=r"'Commit' is not served.*OffsetCommit"):
        groupkeeper.delay("Commit", 1)
    with pytest.raises(ValueError, match="ms must be at least 0, not -1"):
        groupkeeper.delay("OffsetCommit", -1)


async def test_the_asynchronous_server_has_the_same_faults():
    async with GroupkeeperServer(topics={"orders": 1}) as server:
        refused = pytest.raises(TestingError, match="COORDINATOR_LOAD_IN_PROGRESS")
        with server.fail_storage(appends=1), refused:
            await server.commit("g", {("orders", 0): 1})
        await server.commit("g", {("orders", 0): 1})
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with server.delay("ApiVersions", 3_600_000):
            writer.write(struct.pack(">ihhih", 10, 18, 0, 7, 0))
            await server.advance(8 * DAY_MS)
        assert (await reader.readexactly(8))[4:] == struct.pack(">i", 7)
        writer.close()
        assert await server.committed("g") == {}
        assert server.events("g")[-1]["kind"] == "group_deleted"
        with pytest.raises(TestingError, match="nobody"):
            await server.evict("g", "app")
