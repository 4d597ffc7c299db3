"""The state of a group as clients see it over the protocol, for comparisons."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.helpers.wire.raw_client import RawClient

NONE = 0
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27


class GroupView(NamedTuple):
    """A group as DescribeGroups shows it, and its generation, which only a Heartbeat can find."""

    state: str
    protocol_type: str
    protocol: str
    generation: int | None
    members: dict[str, tuple[str | None, str, bytes, bytes]]
    """Member id -> (instance id, client id, subscription, assignment)."""


def describe(client: RawClient, group: str) -> dict[str, Any]:
    """Return the group's entry of DescribeGroups v5."""
    (entry,) = client.call("describe_groups", 5, groups=[group])["groups"]
    assert isinstance(entry, dict)
    return entry


def view(client: RawClient, group: str, *, generation_hint: int = 1) -> GroupView:
    """Return the view of a group. The generation is None unless the group is Stable."""
    entry = describe(client, group)
    members = {
        m["member_id"]: (
            m["group_instance_id"],
            m["client_id"],
            m["member_metadata"],
            m["member_assignment"],
        )
        for m in entry["members"]
    }
    generation = None
    if entry["group_state"] == "Stable":
        member_id, (instance, *_) = next(iter(members.items()))
        generation = generation_of(client, group, member_id, instance, hint=generation_hint)
    return GroupView(
        entry["group_state"], entry["protocol_type"], entry["protocol_data"], generation, members
    )


def generation_of(
    client: RawClient, group: str, member_id: str, instance: str | None, *, hint: int = 1
) -> int:
    """Return the generation that the group accepts from that member, found by trying.

    It counts as the member's heartbeat; a wrong generation changes nothing.
    """
    tries = [hint, *(n for n in range(1, 200) if n != hint)]
    for generation in tries:
        code = heartbeat(client, group, member_id, generation, instance)
        if code in (NONE, REBALANCE_IN_PROGRESS):
            return generation
        assert code == ILLEGAL_GENERATION, f"heartbeat of {member_id} in {group}: {code}"
    raise AssertionError(f"no generation below 200 fits {member_id} in {group}")


def heartbeat(
    client: RawClient, group: str, member_id: str, generation: int, instance: str | None = None
) -> int:
    """Return the error code of one Heartbeat."""
    reply = client.call(
        "heartbeat",
        4,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
    )
    code: int = reply["error_code"]
    return code


def commit(
    client: RawClient,
    group: str,
    topic: str,
    offsets: dict[int, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
) -> dict[int, int]:
    """Send an OffsetCommit v8. Return partition -> error code."""
    reply = client.call(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[{"name": topic, "partitions": _partitions(offsets)}],
    )
    return {p["partition_index"]: p["error_code"] for t in reply["topics"] for p in t["partitions"]}


def _partitions(offsets: dict[int, int]) -> list[dict[str, Any]]:
    return [
        {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        for partition, offset in offsets.items()
    ]


def committed(client: RawClient, group: str) -> dict[tuple[str, int], int]:
    """Return every offset of a group (OffsetFetch v7, all topics, require-stable)."""
    reply = client.call("offset_fetch", 7, group_id=group, topics=None, require_stable=True)
    assert reply["error_code"] == NONE, reply
    found = {}
    for topic in reply["topics"]:
        for partition in topic["partitions"]:
            assert partition["error_code"] == NONE, reply
            found[(topic["name"], partition["partition_index"])] = partition["committed_offset"]
    return found
