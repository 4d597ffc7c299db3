"""What a host passes in is checked before it can reach a store."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest

from groupkeeper.coordinator.core.assignors.types import TopicPartition
from groupkeeper.coordinator.core.errors import GroupError
from groupkeeper.coordinator.embed.commit_log import replay
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberAssignmentData,
    OffsetCommitData,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProtocolMetadata,
    SyncGroupRequest,
)
from groupkeeper.coordinator.embed.offset_manager import OffsetManager
from groupkeeper.coordinator.testkit.server import GroupkeeperServer
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.runtime.coordinator import RecordingTicket, a_commit
from tests.helpers.runtime.virtual_loop import turns
from tests.helpers.wire.raw_client import RawClient


@pytest.mark.parametrize("offset", [42.0, 1.5, True, "12"])
async def test_an_offset_that_is_no_integer_is_refused_and_the_store_stays_readable(
    tmp_path, offset
):
    path = tmp_path / "groups.db"
    coordinator = GroupCoordinator(SqliteOffsetStorage(path))
    await coordinator.start()
    manager = OffsetManager(coordinator)
    await manager.commit_offset("g", "orders", 0, 7)
    problem = (
        "OffsetCommitRequest.offsets['orders'][0].offset: Expected `int`, "
        f"got `{type(offset).__name__}`: {offset!r}"
    )
    with pytest.raises(TypeError, match=f"^{re.escape(problem)}$"):
        await manager.commit_offset("g", "orders", 0, offset)
    await coordinator.stop()
    again = GroupCoordinator(SqliteOffsetStorage(path))
    await again.start()
    assert await OffsetManager(again).get_offset("g", "orders", 0) == 7
    await again.stop()


@pytest.fixture
async def in_memory():
    coordinator = GroupCoordinator(MemoryOffsetStorage())
    await coordinator.start()
    yield coordinator
    await coordinator.stop()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (OffsetCommitData(7, "", None), "leader_epoch: Expected `int`, got `null`: None"),
        (OffsetCommitData(7, b"", -1), "metadata: Expected `str`, got `bytes`: b''"),
    ],
    ids=["no epoch", "bytes for text"],
)
async def test_what_comes_with_an_offset_is_checked_too(in_memory, data, problem):
    with pytest.raises(TypeError, match=problem):
        await in_memory.commit_offsets(
            OffsetCommitRequest(group_id="g", offsets={"orders": {0: data}})
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_timeout_ms": 10_000.0},
        {"rebalance_timeout_ms": 10_000.5},
        {"protocols": [ProtocolMetadata("range", "text")]},
    ],
    ids=["session timeout", "rebalance timeout", "metadata"],
)
async def test_a_join_is_checked(in_memory, wrong):
    request = {"group_id": "g", "protocols": [ProtocolMetadata("range")]} | wrong
    (name,) = wrong
    with pytest.raises(TypeError, match=rf"^JoinGroupRequest\.{name}\S*: Expected "):
        await in_memory.join_group(JoinGroupRequest(**request))


CALLS = {
    "join_group": "JoinGroupRequest",
    "sync_group": "SyncGroupRequest",
    "heartbeat": "HeartbeatRequest",
    "leave_group": "LeaveGroupRequest",
    "commit_offsets": "OffsetCommitRequest",
    "fetch_offsets": "OffsetFetchRequest",
}


@pytest.mark.parametrize("given", [None, "g", {"group_id": "g"}, LeaveGroupRequest])
@pytest.mark.parametrize(("call", "kind"), CALLS.items())
async def test_a_call_of_something_else_than_its_request_says_which_it_takes(
    in_memory, call, kind, given
):
    with pytest.raises(TypeError, match=f"^this call needs a {kind}, not "):
        await getattr(in_memory, call)(given)


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.commit_offsets(OffsetCommitRequest(group_id="g", offsets={"t": {0: 1}})),
        lambda c: c.commit_offsets(OffsetCommitRequest(group_id="g", offsets={"t": [1]})),
        lambda c: c.commit_offsets(OffsetCommitRequest(group_id="g", offsets=None)),
        lambda c: c.fetch_offsets(OffsetFetchRequest(group_id="g", topics=["t"])),
        lambda c: c.fetch_offsets(OffsetFetchRequest(group_id="g", topics={"t": "0"})),
        lambda c: c.join_group(JoinGroupRequest(group_id="g", protocols=["range"])),
        lambda c: c.join_group(JoinGroupRequest(group_id="g", protocols="range")),
        lambda c: c.sync_group(
            SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[("m", b"")])
        ),
        lambda c: c.delete_offsets("g", [("t", 0)]),
        lambda c: c.delete_offsets("g", {"t": 0}),
        lambda c: c.delete_offsets("g", {"t": "0"}),
        lambda c: c.get_group(None),
        lambda c: c.delete_groups(None),
        lambda c: anext(c.commit_log(None)),
        lambda c: anext(c.commit_log("g", 1.5)),
        lambda c: c.delete_offsets("g", {"t": None}),
        lambda c: replay([1], into=c),
        lambda c: replay("g", into=c),
        lambda c: replay(None, into=c),
    ],
)
async def test_a_value_of_another_type_is_a_type_error_wherever_it_stands(in_memory, ask):
    with pytest.raises(TypeError):
        await ask(in_memory)


async def test_offsets_to_delete_are_told_by_their_topic(in_memory):
    await OffsetManager(in_memory).commit_offset("g", "t", 0, 7)
    with pytest.raises(TypeError, match=r"^partitions\['t'\]: Expected `array`, .*: None$"):
        await in_memory.delete_offsets("g", {"t": None})
    with pytest.raises(TypeError, match=r"^partitions: Expected `object`, got `array`: \['t'\]"):
        await in_memory.delete_offsets("g", ["t"])
    assert await in_memory.delete_offsets("g", {"t": {0: "its offset"}}) == {"t": {0: 0}}


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: ProtocolMetadata.subscribing("range", "orders"), TypeError, "not 'orders'"),
        (lambda: ProtocolMetadata.subscribing("range", None), TypeError, "not None"),
        (lambda: ProtocolMetadata.subscribing("range", [7]), TypeError, "must be a string, not 7"),
        (lambda: MemberAssignmentData.of("m", [("t", "0")]), TypeError, "Expected `int`"),
        (lambda: MemberAssignmentData.of("m", [("t", 2**40)]), ValueError, "<= 2147483647"),
        (lambda: MemberAssignmentData.of("m", ["t0"]), TypeError, "Expected `array`"),
        (lambda: MemberAssignmentData.of("m", None), TypeError, "Expected `array`, .*: None"),
    ],
)
def test_what_a_member_says_in_bytes_is_refused_before_they_are_made(make, error, problem):
    with pytest.raises(error, match=problem):
        make()


async def test_any_collection_will_do_where_one_is_asked_for(in_memory):
    await OffsetManager(in_memory).commit_offset("g", "t", 1, 7)
    for numbers in (range(2), {0, 1}, (0, 1), {0: "", 1: ""}.keys(), iter([0, 1])):
        request = OffsetFetchRequest(group_id="g", topics={"t": numbers})
        fetched = await in_memory.fetch_offsets(request)
        assert sorted(fetched.offsets["t"]) == [0, 1]
    pairs = MemberAssignmentData.of("m", {("t", 0)})
    assert pairs == MemberAssignmentData.of("m", iter([TopicPartition("t", 0)]))


async def test_partitions_to_assign_may_be_plain_pairs(in_memory):
    offered = [ProtocolMetadata.subscribing("range", ("t",))]
    joined = await in_memory.join_group(JoinGroupRequest(group_id="g", protocols=offered))
    assert await in_memory.perform_assignment("g", [("t", 0)]) == {
        joined.member_id: [TopicPartition("t", 0)]
    }
    with pytest.raises(TypeError, match=r"^partitions\[0\]\[1\]: Expected `int`, got `str`: '0'"):
        await in_memory.perform_assignment("g", [("t", "0")])


def test_the_manager_of_offsets_takes_the_coordinator():
    """The storage is what the class of that name takes in the project it is known from."""
    with pytest.raises(TypeError, match="coordinator must be a GroupCoordinator, not "):
        OffsetManager(MemoryOffsetStorage())


@pytest.mark.parametrize(
    ("topic", "partition", "problem"),
    [
        (None, 0, "topic must be a string, not None"),
        ([], 0, r"topic must be a string, not \[\]"),
        ("t", "0", "partition must be a whole number, not '0'"),
        ("t", [], r"partition must be a whole number, not \[\]"),
    ],
)
async def test_the_manager_of_offsets_tells_its_arguments_by_their_names(
    in_memory, topic, partition, problem
):
    manager = OffsetManager(in_memory)
    with pytest.raises(TypeError, match=f"^{problem}$"):
        await manager.commit_offset("g", topic, partition, 7)
    with pytest.raises(TypeError, match=f"^{problem}$"):
        await manager.get_offset("g", topic, partition)


@pytest.mark.parametrize("wrong", [1.5, True, "1", None])
def test_limits_of_an_offset_are_whole_numbers(in_memory, wrong):
    manager = OffsetManager(in_memory)
    for given in ((wrong, 0, 2), (1, wrong, 2), (1, 0, wrong)):
        with pytest.raises(TypeError, match="must be a whole number"):
            manager.validate_offset(*given)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            OffsetCommitData(2**63),
            "offset: Expected `int` <= 9223372036854775807, not 92233720368547",
        ),
        (
            OffsetCommitData(-(2**63) - 1),
            "offset: Expected `int` >= -9223372036854775808, not -9223",
        ),
        (
            OffsetCommitData(2**64),
            "offset: Expected `int` <= 9223372036854775807, not 18446744073709",
        ),
        (
            OffsetCommitData(7, "", 2**31),
            "leader_epoch: Expected `int` <= 2147483647, not 2147483648",
        ),
        (OffsetCommitData(7, "", -(2**31) - 1), "leader_epoch: Expected `int` >= -2147483648, not"),
        (OffsetCommitData(7, "half a pair: \ud83d"), ": .* surrogates not allowed"),
    ],
)
async def test_what_no_client_could_be_answered_with_is_refused(data, problem):
    async with GroupkeeperServer(topics={"orders": 1}) as server:
        request = OffsetCommitRequest(group_id="g", offsets={"orders": {0: data}})
        with pytest.raises(ValueError, match=rf"^OffsetCommitRequest(\.offsets\S+\.)?{problem}"):
            await server.coordinator.commit_offsets(request)
        assert await server.committed("g") == {}


async def test_the_largest_numbers_of_the_wire_are_answered_over_it():
    data = OffsetCommitData(2**63 - 1, "", 2**31 - 1)
    async with GroupkeeperServer(topics={"orders": 1}) as server:
        request = OffsetCommitRequest(group_id="g", offsets={"orders": {0: data}})
        (await server.coordinator.commit_offsets(request)).raise_for_error()
        (told,) = await asyncio.to_thread(partitions_over_the_wire, server.port)
        assert (told["committed_offset"], told["committed_leader_epoch"]) == (
            data.offset,
            2**31 - 1,
        )


def partitions_over_the_wire(port: int) -> list[dict[str, Any]]:
    with RawClient(port) as client:
        (topic,) = client.call("offset_fetch", 7, group_id="g", topics=None)["topics"]
        return topic["partitions"]


async def test_a_text_that_cannot_be_written_does_not_cost_others_their_store(tmp_path):
    coordinator = GroupCoordinator(SqliteOffsetStorage(tmp_path / "groups.db"))
    await coordinator.start()
    manager = OffsetManager(coordinator)
    with pytest.raises(ValueError, match="surrogates not allowed"):
        await manager.commit_offset("g", "orders", 0, 7, "\ud800")
    assert coordinator.is_ready
    await manager.commit_offset("g", "orders", 0, 7)
    await coordinator.stop()


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.join_group(JoinGroupRequest(group_id="g", session_timeout_ms=2**31)),
        lambda c: c.join_group(JoinGroupRequest(group_id="g", rebalance_timeout_ms=2**31)),
        lambda c: c.sync_group(SyncGroupRequest(group_id="g", generation_id=2**31, member_id="")),
        lambda c: c.heartbeat(HeartbeatRequest(group_id="g", generation_id=2**31, member_id="")),
        lambda c: c.commit_offsets(
            OffsetCommitRequest(group_id="g", offsets={}, generation_id=2**31)
        ),
        lambda c: c.get_committed_offset("g", "orders", 2**31),
        lambda c: c.delete_offsets("g", {"orders": [2**31]}),
    ],
    ids=["session", "rebalance", "sync", "heartbeat", "generation", "partition", "deletion"],
)
async def test_a_number_of_more_than_32_bits_is_refused_wherever_the_wire_has_no_more(
    in_memory, ask
):
    with pytest.raises(ValueError, match="<= 2147483647, not 2147483648"):
        await ask(in_memory)


class Numpys:
    """What a number of numpy's is to us: no int, and it says which one it is."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


async def test_a_whole_number_of_another_library_is_as_good_as_an_int(in_memory):
    manager = OffsetManager(in_memory)
    await manager.commit_offset("g", "orders", Numpys(3), Numpys(7))
    assert await manager.get_all_offsets("g") == {"orders": {3: 7}}
    with pytest.raises(ValueError, match="offset: Expected `int` <= 9223372036854775807, not"):
        await manager.commit_offset("g", "orders", 3, Numpys(2**63))


async def test_what_is_no_number_at_all_is_refused_by_the_name_of_the_request(in_memory):
    with pytest.raises(
        TypeError, match=r"^OffsetCommitRequest\.offsets\S+\.offset: Expected `int`, got `object`"
    ):
        await OffsetManager(in_memory).commit_offset("g", "orders", 3, object())


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_a_buffer_is_as_good_as_bytes(in_memory, kind):
    """A broker holds slices of what it has received."""
    joined = await in_memory.join_group(
        JoinGroupRequest(
            group_id="g",
            protocols=[ProtocolMetadata("range", kind(b"subscription"))],
            requires_known_member_id=False,
        )
    )
    (member,) = joined.members
    assert (type(member.metadata), member.metadata) == (bytes, b"subscription")


LONG = "g" * 32_767


@pytest.mark.parametrize(
    "ask",
    [
        lambda c, g: c.join_group(JoinGroupRequest(group_id=g)),
        lambda c, g: c.heartbeat(HeartbeatRequest(group_id=g, generation_id=1, member_id="m")),
        lambda c, g: c.leave_group(LeaveGroupRequest(group_id=g, member_id="m")),
        lambda c, g: OffsetManager(c).commit_offset(g, "orders", 0, 7),
        lambda c, g: OffsetManager(c).commit_offset("g", g, 0, 7),
        lambda c, g: OffsetManager(c).commit_offset("g", "orders", 0, 7, g),
        lambda c, g: c.fetch_offsets(OffsetFetchRequest(group_id=g)),
        lambda c, g: c.get_group(g),
        lambda c, g: c.delete_groups("g", g),
        lambda c, g: c.delete_offsets(g, {"orders": [0]}),
        lambda c, g: anext(c.commit_log(g), None),
    ],
    ids=[
        *("join", "heartbeat", "leave", "commit", "topic", "metadata", "fetch", "group", "delete"),
        *("offsets", "log"),
    ],
)
async def test_a_text_that_no_client_could_say_is_refused_wherever_it_stands(in_memory, ask):
    with suppress(GroupError):
        await ask(in_memory, LONG)
    with pytest.raises(ValueError, match="must be at most 32767 bytes of UTF-8, not 32768"):
        await ask(in_memory, LONG + "g")


async def test_a_group_that_an_earlier_version_took_is_listed_all_the_same(in_memory):
    stored = a_commit(LONG + "g", 7)
    ticket = RecordingTicket()
    in_memory.submit(stored, ticket)
    await turns(20)
    assert [group.group_id for group in await in_memory.list_groups()] == [LONG + "g"]
