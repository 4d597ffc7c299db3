"""Stores that a release has written: ``tests/data/<version>``. All later versions must load them.

    python -m tests.helpers.storage.released_data [name]

This writes the files of this version, once, at its release. If the form of rows or events changes
before, it writes them under another name. They are never written again. There are two stores:
``stopped`` was closed, and ``killed`` is what ``kill -9`` would have left. The file
``expected.json`` beside each describes its content.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from groupkeeper import read_events
from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
)
from groupkeeper.coordinator.core.requests.membership import Heartbeat, JoinGroup, SyncGroup
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    ChangeTopics,
    GroupConfigChange,
    NewTopic,
)
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import (
    OffsetCommitData,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.version import VERSION
from groupkeeper.protocol.consumer_protocol import decode_assignment
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from tests.helpers.core.mixed_groups import assigned, subscribed
from tests.helpers.core.shard_driver import a_join
from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.runtime.embedded import join, sync

DATA = ROOT / "tests" / "data"
WRITTEN_IN = Path("/var/tmp/groupkeeper")
TOPICS = [ConfiguredTopic("orders", 6), ConfiguredTopic("payments", 2)]
NOBODY_EXPIRES_MS = 10**12
NOBODY_LEAVES_MS = 2**31 - 1
PART_BYTES = 1_000
"""The size of a part of a folded group. It is small, and so are the files."""
CLIENT = Client("administrator", "/127.0.0.1")


def opened(directory: Path, *, has_topics: bool = True) -> GroupCoordinator:
    """Return a coordinator on the files of a release, or on a copy of them."""
    seal = SealSettings(directory=directory / "log", segment_bytes=2_000)
    config = CoordinatorConfig(
        shards=4,
        owner="release",
        cluster_id="released",
        initial_rebalance_delay_ms=0,
        max_session_timeout_ms=2**31 - 1,
        offsets_retention_ms=NOBODY_EXPIRES_MS,
        consumer_assignment_interval_ms=0,
    )
    plain = SqliteOffsetStorage(directory / "store.db", part_bytes=PART_BYTES)
    storage = SealedStorage(plain, seal, poll_s=0.01)
    return GroupCoordinator(storage, config, Topics(TOPICS) if has_topics else None)


async def told(coordinator: GroupCoordinator, directory: Path) -> dict[str, Any]:
    """Return the groups and offsets that a coordinator reports, and its event log."""
    groups: dict[str, Any] = {}
    described: dict[str, Any] = {}
    for group in await coordinator.list_groups():
        found = await coordinator.ask(ConsumerGroupDescribe(group.group_id))
        if found.error is ErrorCode.NONE:
            described[group.group_id] = msgspec.to_builtins(found)
            # this is not stored, and the field is newer than the files
            del described[group.group_id]["waiting"]
        fetched = await coordinator.fetch_offsets(OffsetFetchRequest(group_id=group.group_id))
        groups[group.group_id] = {
            "state": group.state,
            "generation": group.generation_id,
            "members": sorted(group.members),
            "offsets": {
                topic: {
                    str(partition): [found.offset, found.leader_epoch, found.metadata]
                    for partition, found in sorted(partitions.items())
                }
                for topic, partitions in sorted(fetched.offsets.items())
            },
        }
    events = list(read_events(directory / "store.db", log_dir=directory / "log"))
    told = {"groups": dict(sorted(groups.items())), "events": events}
    return told | ({"consumer_groups": described} if described else {})


async def _live_without_topics(coordinator: GroupCoordinator) -> None:
    """Commit offsets that get a topic id at the next start, later, and never."""
    for topic in ("orders", "made-later", "never-made"):
        await _commit(coordinator, "hosted", topic, 300)


async def _live(coordinator: GroupCoordinator) -> None:
    """Make stored data of every kind."""
    configs = GroupConfigChange("billing", (("commit.monotonic", "true"),))
    await coordinator.ask(AlterGroupConfigs(CLIENT, (configs,)))
    first = await join(coordinator, group_id="billing", group_instance_id="till-1")
    await sync(coordinator, first, "billing")
    for offset in range(3):
        await _commit(coordinator, "billing", "orders", offset * 100, first)
    await _commit(coordinator, "reports", "payments", 900)
    # a lower offset: the record of the end differs from that of the offset
    await _commit(coordinator, "reports", "payments", 40)
    await coordinator.delete_offsets("reports", {"payments": [1]})
    await _commit_with_notes(coordinator, "large")
    await _commit(coordinator, "short-lived", "orders", 5)
    await coordinator.delete_groups("short-lived")
    await _begin_to_reconcile(coordinator)
    await _begin_to_reconcile_both_protocols(coordinator)
    await _resolve_patterns(coordinator)


CONSUMER_GROUP = "reconciling"
CONSUMERS = ("a", "b")
MIXED_GROUP = "mixed"
REVOKING, WAITING, LIVE, LEFT = "revoking", "waiting", "live", "left"
"""The members of the mixed group. The first two are classic ones. All but ``WAITING`` are static,
with their id as their instance id.
"""
PATTERN_GROUP = "patterns"
MATCHED, UNMATCHED = "matched", "unmatched"


def consumer_heartbeat(member_id: str, epoch: int, **changes: Any) -> ConsumerGroupHeartbeat:
    """Return a heartbeat of a member of the consumer group. With epoch 0 the member joins."""
    joins = {"rebalance_timeout_ms": NOBODY_LEAVES_MS, "subscribed_topic_names": ("orders",)}
    unchanged = dict.fromkeys(
        (
            *("group_instance_id", "rack_id", "subscribed_topic_names", "subscribed_topic_regex"),
            *("pattern_error", "server_assignor", "owned"),
        )
    )
    return ConsumerGroupHeartbeat(
        member_id=member_id,
        member_epoch=epoch,
        new_member_id="",
        client=CLIENT,
        **{
            "group_id": CONSUMER_GROUP,
            **unchanged,
            "rebalance_timeout_ms": -1,
            **(joins | {"owned": ()} if epoch == 0 else {}),
            **changes,
        },
    )


async def _begin_to_reconcile(coordinator: GroupCoordinator) -> None:
    """Leave a consumer group in which one member has not given up the partitions of the other."""
    first, second = CONSUMERS
    joined = await coordinator.ask(consumer_heartbeat(first, 0, group_instance_id="till-2"))
    assert joined.error is ErrorCode.NONE
    await coordinator.ask(consumer_heartbeat(second, 0))
    told = await coordinator.ask(consumer_heartbeat(first, joined.member_epoch))
    assert told.assignment is not None
    offsets = {"orders": {0: OffsetCommitData(70)}}
    request = OffsetCommitRequest(
        group_id=CONSUMER_GROUP,
        offsets=offsets,
        member_id=first,
        generation_id=told.member_epoch,
        client_id="app",
    )
    (await coordinator.commit_offsets(request)).raise_for_error()


def classic_join(member_id: str, *owned: int) -> JoinGroup:
    """Return a JoinGroup of a classic member of the mixed group, which owns these partitions."""
    return a_join(
        MIXED_GROUP,
        "" if member_id == REVOKING and not owned else member_id,
        new_member_id=member_id,
        group_instance_id=_instance_id(member_id),
        protocols=subscribed(*owned),
        session_timeout_ms=NOBODY_LEAVES_MS,
        rebalance_timeout_ms=NOBODY_LEAVES_MS,
        client=CLIENT,
    )


def classic_sync(member_id: str, generation_id: int, assignment: bytes | None = None) -> SyncGroup:
    """Return a SyncGroup of a classic member of the mixed group. A leader assigns to itself."""
    return SyncGroup(
        group_id=MIXED_GROUP,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=_instance_id(member_id),
        protocol_type="consumer",
        protocol_name="range",
        assignments=() if assignment is None else ((member_id, assignment),),
        client=CLIENT,
    )


def classic_heartbeat(member_id: str, generation_id: int) -> Heartbeat:
    """Return a Heartbeat of a classic member of the mixed group."""
    return Heartbeat(MIXED_GROUP, generation_id, member_id, _instance_id(member_id), CLIENT)


def _instance_id(member_id: str) -> str | None:
    return None if member_id == WAITING else member_id


async def _begin_to_reconcile_both_protocols(coordinator: GroupCoordinator) -> None:
    """Leave a consumer group with members of both protocols. A classic member has not given up the
    partitions for which the others wait. One static member has left for a short time.
    """
    first = await coordinator.ask(classic_join(REVOKING))
    everything = assigned(*range(6))
    synced = await coordinator.ask(classic_sync(REVOKING, first.generation_id, everything))
    assert synced.error is ErrorCode.NONE
    for member_id in (LIVE, LEFT):
        joins = consumer_heartbeat(member_id, 0, group_id=MIXED_GROUP, group_instance_id=member_id)
        assert (await coordinator.ask(joins)).error is ErrorCode.NONE
    again = await coordinator.ask(classic_join(REVOKING, *range(6)))
    assert again.generation_id == first.generation_id  # it must give up partitions first
    joined = await coordinator.ask(classic_join(WAITING))
    synced = await coordinator.ask(classic_sync(WAITING, joined.generation_id))
    assert decode_assignment(synced.assignment).partitions == {}
    leaves = consumer_heartbeat(LEFT, -2, group_id=MIXED_GROUP, group_instance_id=LEFT)
    assert (await coordinator.ask(leaves)).error is ErrorCode.NONE


async def _resolve_patterns(coordinator: GroupCoordinator) -> None:
    """Make a group with two patterns: one matches a topic, the other one matches none."""
    for member_id, pattern in ((MATCHED, "pay.*"), (UNMATCHED, "absent.*")):
        joins = consumer_heartbeat(
            member_id,
            0,
            group_id=PATTERN_GROUP,
            subscribed_topic_names=(),
            subscribed_topic_regex=pattern,
        )
        assert (await coordinator.ask(joins)).error is ErrorCode.NONE
        if member_id == MATCHED:
            await until_epoch(coordinator, PATTERN_GROUP, 2)
    beats = consumer_heartbeat(MATCHED, 1, group_id=PATTERN_GROUP)
    told = await coordinator.ask(beats)
    assert told.member_epoch == 2
    assert told.assignment


async def until_epoch(coordinator: GroupCoordinator, group_id: str, epoch: int) -> None:
    """Wait until the group has this epoch: until the topics of its patterns are found."""
    async with asyncio.timeout(60):
        while await _epoch(coordinator, group_id) < epoch:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)


async def _epoch(coordinator: GroupCoordinator, group_id: str) -> int:
    return (await coordinator.ask(ConsumerGroupDescribe(group_id))).group_epoch


async def _live_on(coordinator: GroupCoordinator) -> None:
    """Make data that is not sealed yet when the files are copied."""
    assert coordinator.topics is not None
    made = NewTopic("made-later", 1, "bWFkZS1sYXRlci1vbi0xMg")
    await coordinator.topics.change_and_wait(ChangeTopics(CLIENT, (made,)))
    await _commit(coordinator, "reports", "made-later", 7)
    await _commit(coordinator, "reports", "orders", 2**40)
    await _commit_with_notes(coordinator, "noted")  # its row is compressed


async def _commit_with_notes(coordinator: GroupCoordinator, group_id: str) -> None:
    notes = {n: OffsetCommitData(n, metadata=f"{n}" * 400) for n in range(6)}
    request = OffsetCommitRequest(group_id=group_id, offsets={"orders": notes}, client_id="app")
    (await coordinator.commit_offsets(request)).raise_for_error()


async def _commit(
    coordinator: GroupCoordinator, group_id: str, topic: str, offset: int, member: Any = None
) -> None:
    who = {}
    if member is not None:
        who = {
            "member_id": member.member_id,
            "generation_id": member.generation_id,
            "group_instance_id": "till-1",
        }
    partitions = range(1 if topic == "made-later" else 2)
    data = {n: OffsetCommitData(offset + n, metadata=f"of {n}, ü") for n in partitions}
    request = OffsetCommitRequest(group_id=group_id, offsets={topic: data}, client_id="app", **who)
    (await coordinator.commit_offsets(request)).raise_for_error()


def _photograph(target: Path) -> None:
    kept = shutil.ignore_patterns("*-shm", "*.lock")
    shutil.copytree(WRITTEN_IN, target, ignore=kept)


def _clear() -> None:
    shutil.rmtree(WRITTEN_IN, ignore_errors=True)
    WRITTEN_IN.mkdir(parents=True)


def _has_sealed() -> bool:
    return any((WRITTEN_IN / "log").glob("dt=*/events-*"))


async def write(directory: Path) -> None:
    """Write the files of this version."""
    _clear()
    coordinator = opened(WRITTEN_IN, has_topics=False)
    await coordinator.start()
    await _live_without_topics(coordinator)
    await coordinator.stop()
    coordinator = opened(WRITTEN_IN)
    await coordinator.start()
    await _live(coordinator)
    while not _has_sealed():  # noqa: ASYNC110 - files tell nobody
        await asyncio.sleep(0.05)
    await coordinator.stop()
    coordinator = opened(WRITTEN_IN)  # its log begins with an event that names the log before it
    await coordinator.start()
    await _live_on(coordinator)
    expected = await told(coordinator, WRITTEN_IN)
    _photograph(directory / "killed")
    await coordinator.stop()
    _photograph(directory / "stopped")
    _clear()
    text = msgspec.json.format(msgspec.json.encode(expected), indent=1)
    (directory / "expected.json").write_bytes(text + b"\n")


if __name__ == "__main__":
    asyncio.run(write(DATA / (sys.argv[1] if len(sys.argv) > 1 else VERSION)))
