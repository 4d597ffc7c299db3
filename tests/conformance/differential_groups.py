"""Differential cases: group membership and offsets (spec 6, 7 and 11)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from tests.conformance.differential_side import TOPIC, join, offsets, stable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.differential_side import Side


def join_versions(side: Side, group: str) -> None:
    for version in range(10):
        mine = f"{group}-{version}"
        first = side("join_group", version, **join(mine))
        if first["error_code"] == 79:
            side("join_group", version, **join(mine, first["member_id"]))


def join_errors(side: Side, group: str) -> None:
    for version in (0, 4, 6, 7, 9):
        side("join_group", version, **join("", "x"))
        side("join_group", version, **join(group, "unknown-member"))
        side("join_group", version, **join(group, session_timeout=5))
        side("join_group", version, **join(group, session_timeout=10_000_000))
        side("join_group", version, **join(group, protocols=[]))
        side("join_group", version, **join(group, protocol_type=""))
    stable(side, group)
    for version in (3, 9):
        side("join_group", version, **join(group, protocol_type="connect"))
        side("join_group", version, **join(group, protocols=[{"name": "no", "metadata": b""}]))
    side("describe_groups", 6, groups=[group])


def pending_ids(side: Side, group: str) -> None:
    member_id = side("join_group", 4, **join(group))["member_id"]
    side("describe_groups", 5, groups=[group])
    side("heartbeat", 4, group_id=group, generation_id=0, member_id=member_id)
    side("sync_group", 3, group_id=group, generation_id=0, member_id=member_id)
    side("leave_group", 3, group_id=group, members=[{"member_id": member_id}])
    side("join_group", 4, **join(group, member_id))
    side("describe_groups", 5, groups=[group])


def sync_errors(side: Side, group: str) -> None:
    for version in range(6):
        side(
            "sync_group",
            version,
            group_id="",
            generation_id=1,
            member_id="x",
            protocol_type="consumer",
            protocol_name="range",
        )
        side(
            "sync_group",
            version,
            group_id=group + "-absent",
            generation_id=1,
            member_id="x",
            protocol_type="consumer",
            protocol_name="range",
        )
    member_id, generation = stable(side, group)
    for version in range(6):
        good: dict[str, Any] = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        side("sync_group", version, **good)
        side("sync_group", version, **{**good, "generation_id": generation + 1})
        side("sync_group", version, **{**good, "member_id": "other"})
        side("sync_group", version, **{**good, "protocol_type": "connect"})
        side("sync_group", version, **{**good, "protocol_name": "sticky"})
        side("sync_group", version, **{**good, "protocol_name": None})


def heartbeats(side: Side, group: str) -> None:
    for version in range(5):
        side("heartbeat", version, group_id="", generation_id=1, member_id="x")
        side("heartbeat", version, group_id=group + "-absent", generation_id=1, member_id="x")
    member_id, generation = stable(side, group)
    for version in range(5):
        for g in (generation, generation - 1, generation + 1, -1):
            side("heartbeat", version, group_id=group, generation_id=g, member_id=member_id)
        side("heartbeat", version, group_id=group, generation_id=generation, member_id="")
        side("heartbeat", version, group_id=group, generation_id=generation, member_id="other")
    side(
        "heartbeat",
        4,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id="no-such",
    )


def leaves(side: Side, group: str) -> None:
    for version in range(6):
        mine = f"{group}-{version}"
        many = {"members": [{"member_id": "x"}, {"member_id": "", "group_instance_id": "i"}]}
        side("leave_group", version, group_id="", member_id="x", **many)
        side("leave_group", version, group_id=mine, member_id="x", **many)
        member_id, generation = stable(side, mine)
        side("leave_group", version, group_id=mine, member_id="x", **many)
        if version >= 3:
            side("leave_group", version, group_id=mine, members=[])
        side(
            "leave_group",
            version,
            group_id=mine,
            member_id=member_id,
            members=[{"member_id": member_id}, {"member_id": member_id}],
        )
        side("heartbeat", 4, group_id=mine, generation_id=generation, member_id=member_id)
        side("describe_groups", 6, groups=[mine])
        again = side("join_group", 3, **join(mine))
        assert again["error_code"] == 0


def static_members(side: Side, group: str) -> None:
    for version in (5, 8, 9):
        mine = f"{group}-{version}"
        old, generation = stable(side, mine, version, group_instance_id="i-1")
        side("describe_groups", 5, groups=[mine])
        back = side("join_group", version, **join(mine, group_instance_id="i-1"))
        side(
            "heartbeat",
            4,
            group_id=mine,
            generation_id=generation,
            member_id=old,
            group_instance_id="i-1",
        )
        side("heartbeat", 4, group_id=mine, generation_id=generation, member_id=old)
        side(
            "heartbeat",
            4,
            group_id=mine,
            generation_id=generation,
            member_id=back["member_id"],
            group_instance_id="i-1",
        )
        side(
            "sync_group",
            3,
            group_id=mine,
            generation_id=generation,
            member_id=old,
            group_instance_id="i-1",
        )
        side(
            "sync_group",
            3,
            group_id=mine,
            generation_id=generation,
            member_id=back["member_id"],
            group_instance_id="i-1",
        )
        side(
            "offset_commit",
            8,
            group_id=mine,
            generation_id_or_member_epoch=generation,
            member_id=old,
            group_instance_id="i-1",
            topics=offsets(),
        )
        side("join_group", version, **join(mine, old, group_instance_id="i-1"))
        side("join_group", version, **join(mine, "strange", group_instance_id="i-2"))
        side("describe_groups", 5, groups=[mine])
        side(
            "leave_group",
            4,
            group_id=mine,
            members=[{"member_id": old, "group_instance_id": "i-1"}],
        )
        side(
            "leave_group", 4, group_id=mine, members=[{"member_id": "", "group_instance_id": "i-1"}]
        )
        side("describe_groups", 5, groups=[mine])


def rebalances(side: Side, group: str) -> None:
    first, generation = stable(side, group)
    parked = side.other.send("join_group", 3, **join(group))
    while True:
        code = side.client.call(
            "heartbeat", 4, group_id=group, generation_id=generation, member_id=first
        )["error_code"]
        if code == 27:
            break
    side("describe_groups", 5, groups=[group])
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=first,
        topics=offsets(),
    )
    side("sync_group", 3, group_id=group, generation_id=generation, member_id=first)
    side("join_group", 3, **join(group, first))
    second = side.keep("the parked join", side.other.receive("join_group", 3, parked))["member_id"]
    side("describe_groups", 5, groups=[group])
    side("list_groups", 4, states_filter=["CompletingRebalance"])
    generation += 1
    side("heartbeat", 4, group_id=group, generation_id=generation, member_id=first)
    side("heartbeat", 4, group_id=group, generation_id=generation - 1, member_id=first)
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=first,
        topics=offsets(),
    )
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation - 1,
        member_id=first,
        topics=offsets(),
    )
    side("join_group", 3, **join(group, first))
    parked = side.other.send(
        "sync_group", 3, group_id=group, generation_id=generation, member_id=second
    )
    side(
        "sync_group",
        3,
        group_id=group,
        generation_id=generation,
        member_id=first,
        assignments=[
            {"member_id": first, "assignment": b"a"},
            {"member_id": "nobody", "assignment": b"x"},
        ],
    )
    side.keep("the parked sync", side.other.receive("sync_group", 3, parked))
    side("describe_groups", 5, groups=[group])
    # A follower that rejoins unchanged, then one that changes what it says.
    side("join_group", 3, **join(group, second))
    side("leave_group", 3, group_id=group, members=[{"member_id": second}])
    side("heartbeat", 4, group_id=group, generation_id=generation, member_id=first)
    side("join_group", 3, **join(group, first))


def commits(side: Side, group: str) -> None:
    for version in range(2, 10):
        mine = f"{group}-{version}"
        for generation, member_id in ((-1, ""), (-1, "x"), (0, ""), (5, "x")):
            side(
                "offset_commit",
                version,
                group_id=f"{mine}-{generation}-{member_id}",
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                retention_time_ms=-1,
                topics=offsets(),
            )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=-1,
            retention_time_ms=-1,
            topics=offsets("absent") + offsets(n=13),
        )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=-1,
            retention_time_ms=-1,
            topics=offsets(metadata=None, offset=-7),
        )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=-1,
            retention_time_ms=-1,
            topics=offsets(metadata="x" * 4097),
        )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=9,
            member_id="m",
            retention_time_ms=-1,
            topics=[],
        )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=9,
            member_id="m",
            retention_time_ms=-1,
            topics=offsets(),
        )
        side("offset_fetch", 5, group_id=mine, topics=None)
        side("describe_groups", 6, groups=[mine])
    member_id, generation = stable(side, group)
    for g, m in (
        (-1, ""),
        (-1, member_id),
        (generation, ""),
        (generation, member_id),
        (generation - 1, member_id),
        (generation + 1, member_id),
        (generation, "other"),
    ):
        for version in (2, 8, 9):
            side(
                "offset_commit",
                version,
                group_id=group,
                generation_id_or_member_epoch=g,
                member_id=m,
                retention_time_ms=-1,
                topics=offsets(),
            )
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id="no-such",
        topics=offsets(),
    )
    zero = [{"topic_id": None, "partitions": offsets()[0]["partitions"]}]
    strange = [{"topic_id": uuid.UUID(int=7), "partitions": offsets()[0]["partitions"]}]
    side(
        "offset_commit",
        10,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=zero + strange,
    )


def fetches(side: Side, group: str) -> None:
    side("offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, topics=offsets())
    some = [
        {"name": TOPIC, "partition_indexes": [0, 1, 5, 99]},
        {"name": "absent", "partition_indexes": [0]},
    ]
    for version in range(1, 8):
        side("offset_fetch", version, group_id=group, topics=some)
        side("offset_fetch", version, group_id=group + "-absent", topics=some)
        if version >= 2:
            side("offset_fetch", version, group_id=group, topics=None)
            side("offset_fetch", version, group_id=group + "-absent", topics=None)
    for version in (8, 9):
        side(
            "offset_fetch",
            version,
            require_stable=True,
            groups=[
                {"group_id": group, "topics": some, "member_id": "garbage", "member_epoch": 4},
                {"group_id": group, "topics": None},
                {"group_id": group + "-absent", "topics": None},
                {"group_id": group, "topics": []},
            ],
        )
    side(
        "offset_fetch",
        10,
        groups=[
            {
                "group_id": group,
                "topics": [{"topic_id": uuid.UUID(int=9), "partition_indexes": [0, 3]}],
            }
        ],
    )


def coordinators(side: Side, group: str) -> None:
    for version in range(7):
        for kind in (0, 1, 2):
            answer = side.client.call(
                "find_coordinator", version, key=group, key_type=kind, coordinator_keys=[group, ""]
            )
            for entry in [answer, *answer.get("coordinators", [])]:
                for field in ("port", "node_id", "host"):
                    if entry.get(field) not in (None, "", -1):
                        entry[field] = "<address>"
            if kind == 0:
                side.keep(f"find_coordinator v{version} key_type {kind}", answer)


def describes(side: Side, group: str) -> None:
    stable(side, group)
    for version in range(7):
        side(
            "describe_groups",
            version,
            groups=[group, group + "-absent", "", group],
            include_authorized_operations=False,
        )
    side("describe_groups", 5, groups=[group], include_authorized_operations=True)
    for version in (4, 5):
        side("list_groups", version, states_filter=["Nonsense"])
        side("list_groups", version, states_filter=["Dead"])


CASES: list[Callable[[Side, str], None]] = [
    join_versions,
    join_errors,
    pending_ids,
    sync_errors,
    heartbeats,
    leaves,
    static_members,
    rebalances,
    commits,
    fetches,
    coordinators,
    describes,
]
