"""Waits until a side knows a new topic completely.

Kafka creates a topic in its controller. The broker's description follows, and then each shard of
the group coordinator learns of it on its own. A case that is early sees a group without partitions.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any

from tests.conformance.kafka import settings
from tests.helpers.wire.raw_client import RawClient

SHARDS = 50
"""``offsets.topic.num.partitions``."""
LIMIT_S = 30.0
PAUSE_S = 0.02


def known_topic(
    port: int,
    name: str,
    partitions: int,
    shards: Iterable[int],
    topic_id: uuid.UUID | None = None,
) -> uuid.UUID:
    """Wait until a side describes the topic completely, and these shards assign all of it. Return
    its id. Where ``topic_id`` is given, an earlier topic of that name does not count.
    """
    end = time.monotonic() + LIMIT_S

    def pause() -> None:
        assert time.monotonic() < end, f"the server on port {port} does not know {name}"
        time.sleep(PAUSE_S)

    with RawClient(port) as client:
        while (found := _described(client, name, partitions)) is None or topic_id not in (
            None,
            found,
        ):
            pause()
        for shard in shards:
            while _assigned(client, shard, name) != {found: partitions}:
                pause()
    return found


def shard_of(group: str) -> int:
    """The shard of a group, as Kafka computes it: from Java's hash of its name."""
    number = 0
    for character in group:
        number = (31 * number + ord(character)) % 2**32
    return number % 2**31 % SHARDS


def _described(client: RawClient, name: str, partitions: int) -> uuid.UUID | None:
    """The id of a topic all of whose partitions have a leader."""
    (found,) = client.call("metadata", 12, topics=[{"topic_id": None, "name": name}])["topics"]
    led = [each for each in found["partitions"] if each["leader_id"] >= 0]
    is_complete = found["error_code"] == 0 and len(led) == partitions
    return uuid.UUID(found["topic_id"]) if is_complete else None


def _assigned(client: RawClient, shard: int, name: str) -> dict[uuid.UUID, int]:
    """What a member gets that is alone in its group: topic id -> number of partitions."""
    group = _group_of(shard)
    joining = {"member_epoch": 0, "rebalance_timeout": settings.LONG_MS, "topic_partitions": []}
    answer = _heartbeat(client, group, **joining, subscribed_topic_names=[name])
    if answer["error_code"]:
        return {}
    _heartbeat(client, group, member_epoch=-1)
    topics = answer["assignment"]["topic_partitions"]
    return {uuid.UUID(each["topic_id"]): len(each["partitions"]) for each in topics}


def _group_of(shard: int) -> str:
    while True:
        group = f"knowing-{uuid.uuid4().hex[:8]}"
        if shard_of(group) == shard:
            return group


def _heartbeat(client: RawClient, group: str, **values: Any) -> dict[str, Any]:
    unchanged = {
        "group_id": group,
        "member_id": "m",
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    return client.call("consumer_group_heartbeat", 1, **{**unchanged, **values})
