"""Differential cases: administration of groups, offsets and configs (spec 7.5, 7.8, 11, 12)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.conformance.differential_side import TOPIC, join, offsets, stable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.differential_side import Side

SESSION = "consumer.session.timeout.ms"
TOPIC_KIND, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

OUR_KEYS = frozenset(
    {
        "commit.monotonic",
        "rebalance.max.join.ms",
        "initial.rebalance.delay.ms",
        "offsets.retention.minutes",
    }
)
"""Kafka has none of these (docs/differences.md)."""


def commit(side: Side, group: str, topic: str = TOPIC, **more: Any) -> None:
    side(
        "offset_commit",
        8,
        **{"group_id": group, "generation_id_or_member_epoch": -1, **more},
        topics=offsets(topic),
    )


def wanted(*topics: tuple[str, list[int]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "partitions": [{"partition_index": p} for p in parts]}
        for name, parts in topics
    ]


def offset_deletes(side: Side, group: str) -> None:
    some = wanted((TOPIC, [0, 11, 12, -1]), ("absent", [0]))
    for topics in (some, []):
        side("offset_delete", 0, group_id="", topics=topics)
        side("offset_delete", 0, group_id=group, topics=topics)
    commit(side, group)
    for topics in (
        [],
        wanted((TOPIC, [])),
        some,
        wanted((TOPIC, [0]), (TOPIC, [1])),
        wanted((TOPIC, [0, 0])),
    ):
        side("offset_delete", 0, group_id=group, topics=topics)
        side("offset_fetch", 7, group_id=group, topics=None)
    for kind in ("consumer", "connect"):
        name = f"{group}-{kind}"
        member_id, generation = stable(side, name, protocol_type=kind)
        here = {"generation_id_or_member_epoch": generation, "member_id": member_id}
        commit(side, name, **here)
        side("offset_delete", 0, group_id=name, topics=some)
        side("offset_fetch", 7, group_id=name, topics=None)
        side("leave_group", 3, group_id=name, members=[{"member_id": member_id}])
        side("offset_delete", 0, group_id=name, topics=some)
        side("offset_fetch", 7, group_id=name, topics=None)


def offset_delete_in_the_first_rebalance(side: Side, group: str) -> None:
    """Edge 77: what the members subscribe to is not known yet."""
    member_id, _ = stable(side, group)
    correlation_id = side.other.send("join_group", 3, **join(group))
    time.sleep(0.3)
    topics = wanted((TOPIC, [0]), ("absent", [0]))
    side("offset_delete", 0, group_id=group, topics=topics)
    side("leave_group", 3, group_id=group, members=[{"member_id": member_id}])
    side.keep("the second member", side.other.receive("join_group", 3, correlation_id))
    side("offset_delete", 0, group_id=group, topics=topics)


def group_deletes(side: Side, group: str) -> None:
    for version in range(3):
        empty, full, pending = (f"{group}-{version}-{n}" for n in ("empty", "full", "pending"))
        commit(side, empty)
        member_id, _ = stable(side, full)
        side("join_group", 4, **join(pending))
        names = [empty, full, pending, f"{group}-absent", empty, ""]
        side("delete_groups", version, groups_names=names)
        side("delete_groups", version, groups_names=[])
        side("offset_fetch", 7, group_id=empty, topics=None)
        side("describe_groups", 6, groups=[empty, pending])
        side("leave_group", 3, group_id=full, members=[{"member_id": member_id}])
        side("delete_groups", version, groups_names=[full])
        side("delete_groups", version, groups_names=[full])


def a_static_member_keeps_its_group(side: Side, group: str) -> None:
    member_id, _ = stable(side, group, version=5, group_instance_id="i-1")
    side("delete_groups", 2, groups_names=[group])
    by_instance = [{"member_id": "", "group_instance_id": "i-1", "reason": "an administrator"}]
    for version in (3, 4, 5):
        side("leave_group", version, group_id=group, members=by_instance)
    side("delete_groups", 2, groups_names=[group])
    assert member_id


def listings(side: Side, group: str) -> None:
    stable(side, f"{group}-stable")
    stable(side, f"{group}-connect", protocol_type="connect")
    commit(side, f"{group}-simple")
    side("join_group", 4, **join(f"{group}-pending"))
    for version in range(6):
        for states in ([], ["Stable"], [" sTaBle "], ["Empty", "Dead"], ["nonsense"], [""]):
            for types in ([], ["classic"], ["CLASSIC"], [" classic"], ["consumer"], ["nonsense"]):
                if (states and version < 4) or (types and version < 5):
                    continue
                answer = side.client.call(
                    "list_groups", version, states_filter=states, types_filter=types
                )
                mine = [g for g in answer["groups"] if g["group_id"].startswith(group)]
                side.keep(f"list_groups v{version} {states} {types}", {**answer, "groups": mine})


def descriptions(side: Side, group: str) -> None:
    stable(side, f"{group}-stable")
    commit(side, f"{group}-simple")
    side("join_group", 4, **join(f"{group}-pending"))
    names = [f"{group}-{n}" for n in ("stable", "simple", "pending", "absent", "simple")]
    for version in range(7):
        for with_operations in (False, True):
            answer = side.client.call(
                "describe_groups",
                version,
                groups=[*names, ""],
                include_authorized_operations=with_operations,
            )
            for described in answer["groups"]:
                for member in described["members"]:
                    member["client_host"] = "<host>"
            side.keep(f"describe_groups v{version} {with_operations}", answer)


def deleted_topics(side: Side, group: str) -> None:
    """Their offsets go at once, others stay, and a new topic of the name starts afresh."""
    name = f"{group}-topic"
    new = {"name": name, "num_partitions": 2, "replication_factor": 1}
    side.client.call("create_topics", 4, topics=[new], timeout=20_000)
    for who in (group, f"{group}-2"):
        commit(side, who)
        commit(side, who, name)
    side.client.call("delete_topics", 5, topic_names=[name], timeout=20_000, timeout_ms=20_000)
    time.sleep(1)
    for who in (group, f"{group}-2"):
        side("offset_fetch", 7, group_id=who, topics=None)
    side.client.call("create_topics", 4, topics=[new], timeout=20_000)
    time.sleep(0.5)
    side("offset_fetch", 7, group_id=group, topics=wanted_by_index((name, [0, 1])))
    commit(side, group, name)
    side("offset_fetch", 7, group_id=group, topics=None)


def wanted_by_index(*topics: tuple[str, list[int]]) -> list[dict[str, Any]]:
    return [{"name": name, "partition_indexes": parts} for name, parts in topics]


def change(kind: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": n, "config_operation": o, "value": v} for n, o, v in configs],
    }


def altered_configs(side: Side, group: str) -> None:
    # Known to differ and left out: a value with spaces, which Kafka takes and then fails to apply;
    # an unknown operation (UNKNOWN_SERVER_ERROR there); configs of topics, of the broker, of
    # loggers and of client metrics, which nobody can change here.
    cases = [
        change(GROUP, group, (SESSION, SET, value))
        for value in ("x", "", "1", "44999", "45000", "60000", "60001", "46000.0", "0046000", None)
    ]
    cases += [
        change(GROUP, group),
        change(GROUP, group, ("nowhere", SET, "1")),
        change(GROUP, group, ("nowhere", DELETE, None)),
        change(GROUP, group, ("nowhere", SET, None)),
        change(GROUP, group, ("nowhere", APPEND, "1")),
        change(GROUP, group, (SESSION, APPEND, "1")),
        change(GROUP, group, (SESSION, SUBTRACT, "1")),
        change(GROUP, group, (SESSION, SET, "46000"), (SESSION, DELETE, None)),
        change(GROUP, group, (SESSION, SET, "47000"), ("nowhere", SET, "1")),
        change(GROUP, group, (SESSION, DELETE, "1")),
        change(GROUP, group, (SESSION, DELETE, None)),
        change(GROUP, "", (SESSION, SET, "46000")),
        *[
            change(GROUP, group, (f"share.{key}", SET, value))
            for key, values in {
                "auto.offset.reset": ("earliest", "LATEST", "none", "by_duration:PT1H"),
                "isolation.level": ("read_committed", "READ_COMMITTED", "x"),
                "renew.acknowledge.enable": ("false", "TRUE", "1"),
                "delivery.count.limit": ("1", "2", "10", "11"),
            }.items()
            for value in values
        ],
        change(0, group),
        change(99, group),
        change(TOPIC_KIND, "absent", ("retention.ms", SET, "1")),
        change(BROKER, "9", ("log.cleaner.threads", SET, "1")),
        change(BROKER, "x", ("log.cleaner.threads", SET, "1")),
    ]
    for version in range(2):
        for case in cases:
            for validate_only in (True, False):
                answer = side(
                    "incremental_alter_configs",
                    version,
                    resources=[case],
                    validate_only=validate_only,
                )
                assert len(answer["responses"]) == 1
            time.sleep(0.02)  # a change reaches the describing side of Kafka in a moment
            described(side, version + 3, [(GROUP, group)], include_synonyms=True)
        twice = [change(GROUP, group), change(GROUP, f"{group}-other"), change(GROUP, group)]
        side("incremental_alter_configs", version, resources=twice, validate_only=False)
        several = [
            change(GROUP, f"{group}-a", (SESSION, SET, "47000")),
            change(GROUP, f"{group}-b", (SESSION, SET, "x")),
            change(GROUP, f"{group}-c", (SESSION, SET, "48000")),
        ]
        side("incremental_alter_configs", version, resources=several, validate_only=False)
        time.sleep(0.3)
        listed = side.client.call("list_config_resources", 1, resource_types=[GROUP])
        mine = [r for r in listed["config_resources"] if r["resource_name"].startswith(group)]
        side.keep("list_config_resources", {**listed, "config_resources": mine})


def described(
    side: Side,
    version: int,
    resources: list[tuple[int, str]],
    keys: list[str] | None = None,
    **more: Any,
) -> None:
    """Ask, and keep what both have; the words of the documentation are each side's own."""
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name in resources
    ]
    answer = side.client.call("describe_configs", version, resources=asked, **more)
    for result in answer["results"]:
        result["configs"] = [c for c in result["configs"] if c["name"] not in OUR_KEYS]
        for config in result["configs"]:
            if config.get("documentation"):
                config["documentation"] = "<text>"
    side.keep(f"describe_configs v{version} {resources} {keys} {more}", answer)


def described_configs(side: Side, group: str) -> None:
    # Known to differ and left out: what a broker and a topic have to tell; loggers and client
    # metrics, which Kafka describes and we have none of.
    pair = change(GROUP, group, (SESSION, SET, "47000"), ("share.delivery.count.limit", SET, "3"))
    side("incremental_alter_configs", 1, resources=[pair], validate_only=False)
    time.sleep(0.3)
    for version in range(1, 5):
        for with_synonyms in (False, True):
            for keys in (None, [], [SESSION], [SESSION, "nowhere"], ["nowhere"]):
                described(
                    side,
                    version,
                    [(GROUP, group), (GROUP, "absent")],
                    keys,
                    include_synonyms=with_synonyms,
                    include_documentation=with_synonyms,
                )
        for kind, name in (
            (GROUP, ""),
            (TOPIC_KIND, "absent"),
            (TOPIC_KIND, ""),
            (TOPIC_KIND, "bad name"),
            (BROKER, "9"),
            (BROKER, "x"),
            (0, "x"),
            (1, "x"),
            (99, "x"),
            (-1, "x"),
        ):
            described(side, version, [(kind, name)])


def listed_configs(side: Side, _: str) -> None:
    side("list_config_resources", 0)
    for kinds in ([CLIENT_METRICS], [BROKER], [0], [64], [99], [GROUP, 99], [-1]):
        side("list_config_resources", 1, resource_types=kinds)


CASES: list[Callable[[Side, str], None]] = [
    offset_deletes,
    offset_delete_in_the_first_rebalance,
    group_deletes,
    a_static_member_keeps_its_group,
    listings,
    descriptions,
    deleted_topics,
    altered_configs,
    described_configs,
    listed_configs,
]
