"""What a scripted case says: a person joins, syncs, commits, at the version under test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.kafka import settings
from tests.conformance.kafka.asked import ASKED
from tests.conformance.kafka.new_topics import known_topic, shard_of
from tests.conformance.kafka.pair import BY_NAME, Pair, Person, Ref
from tests.conformance.kafka.sent import Answer
from tests.helpers.wire.raw_client import RawClient

LEVELS: Sequence[int] = range(11) if ASKED.all_versions else range(3)
"""At level n each API is asked with the nth of its versions, and at the last with its highest. No
API of groups or offsets has more than eleven; of Metadata and Fetch some in between are left out.
"""

SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders\0\0\0\0"
"""A consumer's metadata, version 0: the topic ``orders``."""

Protocols = Sequence[tuple[str, bytes]]
RANGE: Protocols = (("range", SUBSCRIPTION),)


def versions_of(api: str) -> list[int]:
    """The versions of an API that are put to both sides."""
    found = BY_NAME[api]
    if ASKED.all_versions:
        return list(range(found.min_version, found.max_version + 1))
    flexible = min(found.first_flexible, found.max_version)
    return sorted({found.min_version, flexible, found.max_version})


def version_at(api: str, level: int) -> int:
    """The version of an API at a level."""
    versions = versions_of(api)
    if not ASKED.all_versions and len(versions) == 2:  # the first flexible version is one of both
        versions.insert(1, versions[BY_NAME[api].first_flexible != versions[0]])
    return versions[-1 if level == LEVELS[-1] else min(level, len(versions) - 1)]


class Case:
    """Both sides, asked at one level; ``group`` is the case's own."""

    def __init__(self, pair: Pair, level: int) -> None:
        self.pair = pair
        self.level = level
        self.group = pair.group
        self.person = pair.person
        self.wait = pair.wait
        self.wait_for = pair.wait_for
        self.observe = pair.observe

    def people(self, *names: str) -> list[Person]:
        """Several clients."""
        return [self.person(name) for name in names]

    def v(self, api: str, least: int = 0) -> int:
        """The version of an API at this level, or the least that has what the case is about."""
        return max(version_at(api, self.level), least)

    def send(self, person: Person, api: str, version: int | None = None, **values: Any) -> Answer:
        """Send any request; of ``group_id`` the case's own is the default."""
        version = self.v(api) if version is None else version
        return self.pair.send(person, api, version, **{"group_id": self.group, **values})

    def joining(
        self,
        person: Person,
        *,
        version: int | None = None,
        member_id: Ref | str | None = None,
        protocols: Protocols = RANGE,
        instance: str | None = None,
        **more: Any,
    ) -> tuple[Person, str, int, dict[str, Any]]:
        """A JoinGroup with the person's own id, for ``Pair.send_all``."""
        version = self.v("join_group") if version is None else version
        values = {
            "group_id": self.group,
            "session_timeout": settings.LONG_MS,
            "rebalance_timeout": settings.LONG_MS,
            "member_id": person.id if member_id is None else member_id,
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": data} for name, data in protocols],
            "reason": "a case",
            **more,
        }
        return person, "join_group", version, values

    def join(self, person: Person, **how: Any) -> Answer:
        """JoinGroup once, with the person's own id where nothing else is said."""
        return self.pair.send_all([self.joining(person, **how)])[0]

    def enter(self, person: Person, **how: Any) -> Answer:
        """Join, with the second round trip where the version has one (KIP-394)."""
        answer = self.join(person, **how)
        if answer.get("error_code") == 79:
            answer = self.join(person, **how)
        return answer

    def sync(
        self,
        person: Person,
        assign: Mapping[Person, bytes] | None = None,
        *,
        version: int | None = None,
        generation: Ref | int | None = None,
        member_id: Ref | str | None = None,
        instance: str | None = None,
        **more: Any,
    ) -> Answer:
        """SyncGroup; the leader assigns."""
        assignments = [
            {"member_id": of.id, "assignment": what} for of, what in (assign or {}).items()
        ]
        return self.send(
            person,
            "sync_group",
            version,
            **{
                "generation_id": person.generation() if generation is None else generation,
                "member_id": person.id if member_id is None else member_id,
                "group_instance_id": instance,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments,
                **more,
            },
        )

    def heartbeat(
        self,
        person: Person,
        *,
        version: int | None = None,
        generation: Ref | int | None = None,
        member_id: Ref | str | None = None,
        instance: str | None = None,
        **more: Any,
    ) -> Answer:
        """Heartbeat with the person's own id and generation."""
        return self.send(
            person,
            "heartbeat",
            version,
            generation_id=person.generation() if generation is None else generation,
            member_id=person.id if member_id is None else member_id,
            group_instance_id=instance,
            **more,
        )

    def leave(
        self,
        person: Person,
        *members: tuple[Ref | str, str | None],
        version: int | None = None,
        **more: Any,
    ) -> Answer:
        """LeaveGroup of (member id, instance id), of oneself where nobody is named."""
        gone = members or ((person.id, None),)
        return self.send(
            person,
            "leave_group",
            version,
            member_id=gone[0][0],
            members=[
                {"member_id": member_id, "group_instance_id": instance, "reason": "a case"}
                for member_id, instance in gone
            ],
            **more,
        )

    def commit(
        self,
        person: Person,
        *,
        version: int | None = None,
        generation: Ref | int | None = None,
        member_id: Ref | str | None = None,
        topics: Any = None,
        retention_ms: int = -1,
        **more: Any,
    ) -> Answer:
        """OffsetCommit as the member that the person is."""
        return self.send(
            person,
            "offset_commit",
            version,
            generation_id_or_member_epoch=person.generation() if generation is None else generation,
            member_id=person.id if member_id is None else member_id,
            retention_time=retention_ms,
            topics=[self.offsets()] if topics is None else topics,
            **more,
        )

    def reset(self, person: Person, **how: Any) -> Answer:
        """OffsetCommit as an administrator: generation -1, no member."""
        return self.commit(person, **{"generation": -1, "member_id": "", **how})

    def offsets(
        self,
        topic: str = settings.TOPIC,
        partitions: Sequence[int] = (0, 1),
        *,
        offset: int = 5,
        metadata: str | None = "",
        topic_id: Ref | None = None,
    ) -> dict[str, Any]:
        """A topic of an OffsetCommit, by name and by id."""
        return {
            "name": topic,
            "topic_id": (self.pair.topic_id if topic == settings.TOPIC else UNKNOWN_TOPIC)
            if topic_id is None
            else topic_id,
            "partitions": [
                {
                    "partition_index": p,
                    "committed_offset": offset + p,
                    "committed_leader_epoch": -1,
                    "committed_metadata": metadata,
                }
                for p in partitions
            ],
        }

    def fetch(
        self,
        person: Person,
        *,
        version: int | None = None,
        group: str | None = None,
        topics: Any = (),
        everything: bool = False,
        **more: Any,
    ) -> Answer:
        """OffsetFetch of two partitions, of ``topics``, or of everything."""
        asked = None if everything else list(topics) or [self.wanted()]
        group = self.group if group is None else group
        return self.send(
            person,
            "offset_fetch",
            version,
            group_id=group,
            topics=asked,
            groups=[{"group_id": group, "topics": asked, "member_id": None, "member_epoch": -1}],
            **more,
        )

    def wanted(
        self,
        topic: str = settings.TOPIC,
        partitions: Sequence[int] = (0, 1),
        *,
        topic_id: Ref | None = None,
    ) -> dict[str, Any]:
        """A topic of an OffsetFetch, by name and by id."""
        return {
            "name": topic,
            "topic_id": (self.pair.topic_id if topic == settings.TOPIC else UNKNOWN_TOPIC)
            if topic_id is None
            else topic_id,
            "partition_indexes": list(partitions),
        }

    def make_topic(self, name: str, partitions: int = 2) -> Ref:
        """Make a topic on both sides, and wait until both know it; returns its ids."""
        ids = []
        for port in self.pair.ports:
            with RawClient(port) as admin:
                new = {"name": name, "num_partitions": partitions, "replication_factor": 1}
                made = admin.call("create_topics", 7, topics=[new], timeout=20_000)
                topic_id = uuid.UUID(made["topics"][0]["topic_id"])
            ids.append(known_topic(port, name, partitions, [shard_of(self.group)], topic_id))
        self.pair.comparison.pair(str(ids[0]), str(ids[1]))
        return Ref(lambda side: ids[side], f"<id of {name}>")

    def offset_delete(self, person: Person, *topics: tuple[str, Sequence[int]]) -> Answer:
        """OffsetDelete of (topic, partitions)."""
        return self.send(
            person,
            "offset_delete",
            topics=[
                {"name": name, "partitions": [{"partition_index": p} for p in partitions]}
                for name, partitions in topics or ((settings.TOPIC, (0,)),)
            ],
        )

    def describe(self, person: Person, *groups: str, version: int | None = None) -> Answer:
        """DescribeGroups, of the case's own group where none is named."""
        return self.send(person, "describe_groups", version, groups=list(groups) or [self.group])

    def stable(self, *people: Person, **how: Any) -> None:
        """Bring a group of these to Stable; the first leads."""
        leader = people[0]
        self.enter(leader, **how)
        for person in people[1:]:
            self.enter(person, **how)
        if len(people) > 1:  # the first joins waited for members that did not know of the rebalance
            self.join(leader, **how)
            self.wait_for(*(p for p in people if p.waiting[0]))
        self.settle_in(*people)

    def settle_in(self, *people: Person) -> None:
        """All sync; the first leads and gives each one byte."""
        leader = people[0]
        for person in people[1:]:
            self.sync(person)
        self.sync(leader, {p: bytes([n]) for n, p in enumerate(people)})


UNKNOWN_TOPIC = uuid.UUID(int=7)

Script = Callable[[Case], None]


@dataclass(frozen=True)
class Scripted:
    """A script, the edge cases of docs/spec/edge-cases.md that it provokes, and where it runs."""

    script: Script
    edges: tuple[int, ...]
    small: bool = False
    """On the pair of servers with an initial delay, a size limit and a frequent expiry pass."""
    by_hand: bool = False
    """Takes minutes; runs with ALL_VERSIONS=1, and at the highest versions alone."""

    @property
    def name(self) -> str:
        """What the test is called."""
        return self.script.__name__


SCRIPTED: list[Scripted] = []


def edge(*edges: int, small: bool = False, by_hand: bool = False) -> Callable[[Script], Script]:
    """Let a script be run, for these edge cases (numbered as in docs/spec/edge-cases.md)."""

    def register(script: Script) -> Script:
        SCRIPTED.append(Scripted(script, edges, small, by_hand))
        return script

    return register
