"""DescribeConfigs, IncrementalAlterConfigs and ListConfigResources
(docs/spec/administration.md#group-configs).
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.core.cluster.group_configs import CONFIG_KEYS
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.records import GroupConfigs
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    AlterGroupConfigsResult,
    GroupConfigResult,
)
from groupkeeper.coordinator.daemon.broker_configs import broker_configs
from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.daemon.group_settings import GroupSettings
from groupkeeper.coordinator.handlers.configs.describe_configs import TOPIC_ENTRIES, Wanted
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.protocol.errors import ProtocolError
from tests.helpers.wire.handling import (
    CLIENT_ID,
    FakeCoordinator,
    ask,
    asked,
    begin,
    make_services,
    versions_of,
)

SESSION = "consumer.session.timeout.ms"
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def configured(limits: CoreLimits | None = None, **groups: dict[str, str]) -> Services:
    """Services over a coordinator whose groups have these configs."""
    coordinator = FakeCoordinator()
    coordinator.group_configs = GroupConfigStore(50, limits or CoreLimits())
    coordinator.group_configs.apply([GroupConfigs(g, pairs) for g, pairs in groups.items()])
    brokers = broker_configs(Settings.model_construct(group=GroupSettings(max_size=7)))
    return make_services(coordinator=coordinator, broker_configs=brokers)


def requests_of(services: Services) -> list[Any]:
    assert isinstance(services.coordinator, FakeCoordinator)
    return services.coordinator.requests


# --- DescribeConfigs


def resource(kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


def describe(
    services: Services, *resources: dict[str, Any], version: int = 4, **more: Any
) -> list[dict[str, Any]]:
    reply = ask("describe_configs", version, services=services, resources=resources, **more)
    assert reply["throttle_time"] == 0
    results = reply["results"]
    assert [(r["resource_type"], r["resource_name"]) for r in results] == [
        (r["resource_type"], r["resource_name"]) for r in resources
    ]
    assert isinstance(results, list)
    return results


@pytest.mark.parametrize("version", versions_of("describe_configs"))
@pytest.mark.parametrize("with_more", [False, True])
def test_a_groups_configs_in_every_version(version: int, with_more: bool) -> None:
    services = configured(g={SESSION: "46000", "commit.monotonic": "true"})
    (result,) = describe(
        services,
        resource(GROUP, "g"),
        version=version,
        include_synonyms=with_more,
        include_documentation=with_more,
    )
    assert (result["error_code"], result["error_message"]) == (0, "")
    shown = {c["name"]: c for c in result["configs"]}
    assert set(shown) == set(CONFIG_KEYS)
    assert len(result["configs"]) == len(CONFIG_KEYS)
    own, default = shown[SESSION], shown["streams.heartbeat.interval.ms"]
    assert (own["value"], own["config_source"]) == ("46000", 8)
    assert (default["value"], default["config_source"]) == ("5000", 5)
    assert not any(c["read_only"] or c["is_sensitive"] for c in result["configs"])
    if with_more:
        assert [tuple(s.values()) for s in own["synonyms"]] == [
            (SESSION, "46000", 8),
            (f"group.{SESSION}", "45000", 5),
        ]
        assert [tuple(s.values()) for s in default["synonyms"]] == [
            ("group.streams.heartbeat.interval.ms", "5000", 5)
        ]
        assert [tuple(s.values()) for s in shown["commit.monotonic"]["synonyms"]] == [
            ("commit.monotonic", "true", 8),
            ("commit.monotonic", "false", 5),
        ]
    else:
        assert not any(c["synonyms"] for c in result["configs"])
    if version >= 3:
        assert [own["config_type"], shown["commit.monotonic"]["config_type"]] == [3, 1]
        assert all(bool(c["documentation"]) is with_more for c in result["configs"])


def test_what_the_daemon_sets_holds_for_groups_that_set_nothing() -> None:
    services = configured(
        CoreLimits(initial_rebalance_delay_ms=0, offsets_retention_ms=60_000 * 5),
        g={"offsets.retention.minutes": "9"},
    )
    keys = ["initial.rebalance.delay.ms", "offsets.retention.minutes"]
    (result,) = describe(services, resource(GROUP, "g", keys), include_synonyms=True)
    shown = [[tuple(s.values()) for s in c["synonyms"]] for c in result["configs"]]
    assert shown == [
        [
            ("group.initial.rebalance.delay.ms", "0", 4),
            ("group.initial.rebalance.delay.ms", "3000", 5),
        ],
        [
            ("offsets.retention.minutes", "9", 8),
            ("offsets.retention.minutes", "5", 4),
            ("offsets.retention.minutes", "10080", 5),
        ],
    ]
    assert [(c["value"], c["config_source"]) for c in result["configs"]] == [("0", 4), ("9", 8)]


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (None, len(CONFIG_KEYS)),
        ([], len(CONFIG_KEYS)),
        ([SESSION], 1),
        ([SESSION, "nowhere", SESSION], 1),
        (["nowhere"], 0),
    ],
)
def test_unknown_keys_are_silently_absent(keys: list[str] | None, shown: int) -> None:
    (result,) = describe(configured(), resource(GROUP, "no such group", keys))
    assert (result["error_code"], len(result["configs"])) == (0, shown)


@pytest.mark.parametrize("kind", [GROUP, TOPIC, BROKER])
def test_keys_that_peers_make_up_are_not_kept(kind: int) -> None:
    """They may be megabytes, and there may be as many answers kept as the cache is long."""
    services = configured()
    name = {GROUP: "g", TOPIC: "orders", BROKER: "1"}[kind]
    made_up = "x" * 30_000
    for number in range(3):
        (result,) = describe(services, resource(kind, name, [f"{made_up}{number}"]))
        assert (result["error_code"], result["configs"]) == (0, [])
    kept = [each for each in gc.get_objects() if isinstance(each, Wanted)]
    assert kept
    assert not [key for wanted in kept for key in wanted.keys if made_up in key]


def test_the_settings_of_this_server_are_told_under_a_brokers_names() -> None:
    (result,) = describe(configured(), resource(BROKER, "1"), include_synonyms=True)
    shown = {c["name"]: c for c in result["configs"]}
    changed, default = shown["group.max.size"], shown["offset.metadata.max.bytes"]
    assert (changed["value"], changed["config_source"]) == ("7", 4)
    assert [s["source"] for s in changed["synonyms"]] == [4, 5]
    assert (default["value"], default["config_source"]) == ("4096", 5)
    assert shown["auto.create.topics.enable"]["value"] == "false"
    int_, long = shown["group.max.size"], shown["connections.max.idle.ms"]
    assert (int_["config_type"], long["config_type"]) == (3, 5)
    assert shown["listeners"]["config_type"] == 7
    assert shown["offsets.retention.check.interval.ms"]["config_type"] == 5
    assert all(c["read_only"] for c in result["configs"])
    assert "advertised.listeners" not in shown, "nothing is advertised but where one came in"


def test_a_topic_has_what_can_be_said_of_one_without_records() -> None:
    (result,) = describe(configured(), resource(TOPIC, "orders"), include_documentation=True)
    assert [c["name"] for c in result["configs"]] == [entry.name for entry in TOPIC_ENTRIES]
    assert all(c["read_only"] and c["config_source"] == 5 for c in result["configs"])


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_leaves_the_others_alone(
    kind: int, name: str, code: ErrorCode
) -> None:
    wrong, right = describe(configured(), resource(kind, name), resource(GROUP, "g"))
    assert (wrong["error_code"], wrong["configs"]) == (code, [])
    assert (right["error_code"], len(right["configs"])) == (0, len(CONFIG_KEYS))


@pytest.mark.parametrize("kind", [0, 99, -1])
def test_a_type_of_resource_that_there_is_not_refuses_all(kind: int) -> None:
    results = describe(configured(), resource(GROUP, "g"), resource(kind, "x"))
    assert [(r["error_code"], r["configs"]) for r in results] == [(42, []), (42, [])]
    assert all(r["error_message"] for r in results)


def test_nothing_is_set_for_all_brokers() -> None:
    (result,) = describe(configured(), resource(BROKER, ""))
    assert (result["error_code"], result["configs"]) == (0, [])


# --- IncrementalAlterConfigs


def change(kind: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": n, "config_operation": o, "value": v} for n, o, v in configs],
    }


def done(request: Any) -> AlterGroupConfigsResult:
    assert isinstance(request, AlterGroupConfigs)
    results = [
        GroupConfigResult(g.group_id, ErrorCode.INVALID_CONFIG, "wrong")
        if g.group_id == "wrong"
        else GroupConfigResult(g.group_id, ErrorCode.NONE, None)
        for g in request.groups
    ]
    return AlterGroupConfigsResult(ErrorCode.NONE, tuple(results))


@pytest.mark.parametrize("version", versions_of("incremental_alter_configs"))
@pytest.mark.parametrize("validate_only", [False, True])
def test_groups_are_altered_in_every_version(version: int, validate_only: bool) -> None:
    services = make_services(done)
    reply = ask(
        "incremental_alter_configs",
        version,
        services=services,
        resources=[
            change(GROUP, "g", (SESSION, SET, "46000"), ("commit.monotonic", DELETE, None)),
            change(BROKER, "1", ("group.max.size", SET, "1")),
            change(GROUP, "wrong"),
        ],
        validate_only=validate_only,
    )
    (request,) = requests_of(services)
    assert request.client.client_id == CLIENT_ID
    assert request.groups == (
        ("g", ((SESSION, "46000"), ("commit.monotonic", None))),
        ("wrong", ()),
    )
    assert request.validate_only is validate_only
    assert reply["throttle_time"] == 0
    assert [tuple(r.values()) for r in reply["responses"]][::2] == [
        (0, None, GROUP, "g"),
        (40, "wrong", GROUP, "wrong"),
    ]
    assert reply["responses"][1]["error_code"] == ErrorCode.POLICY_VIOLATION


def test_a_value_beside_a_delete_counts_for_nothing() -> None:
    request = asked(
        "incremental_alter_configs", 1, resources=[change(GROUP, "g", (SESSION, DELETE, "1"))]
    )
    assert request.groups == (("g", ((SESSION, None),)),)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (change(GROUP, "g", (SESSION, APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (change(GROUP, "g", ("nowhere", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG),
        (change(GROUP, "g", (SESSION, 9, "1")), ErrorCode.INVALID_REQUEST),
        (change(GROUP, "g", (SESSION, SET, None)), ErrorCode.INVALID_REQUEST),
        (
            change(GROUP, "g", (SESSION, SET, "1"), (SESSION, DELETE, None)),
            ErrorCode.INVALID_REQUEST,
        ),
        (change(TOPIC, "orders", ("retention.ms", SET, "1")), ErrorCode.POLICY_VIOLATION),
        (change(TOPIC, "orders", ("nowhere", SET, "1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "orders", ("retention.ms", SET, "x")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "orders", ("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "orders", ("nowhere", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "orders", ("cleanup.policy", APPEND, "x")), ErrorCode.POLICY_VIOLATION),
        (
            change(TOPIC, "nowhere", ("cleanup.policy", APPEND, ",")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            change(TOPIC, "orders", ("cleanup.policy", APPEND, "compact")),
            ErrorCode.POLICY_VIOLATION,
        ),
        (change(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "x")), ErrorCode.POLICY_VIOLATION),
        (change(TOPIC, "orders", ("retention.ms", 9, "1")), ErrorCode.INVALID_REQUEST),
        (change(TOPIC, "absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(TOPIC, "absent", ("nowhere", DELETE, None)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(TOPIC, "absent", ("nowhere", SET, "1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "a b", ("nowhere", SET, "1")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (change(TOPIC, ""), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "1", ("group.max.size", 9, "1")), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "1", ("group.max.size", SET, "1")), ErrorCode.POLICY_VIOLATION),
        (change(BROKER, "", ("group.max.size", SET, "1")), ErrorCode.POLICY_VIOLATION),
        (change(BROKER, "2"), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "x"), ErrorCode.INVALID_REQUEST),
        (change(BROKER_LOGGER, "1"), ErrorCode.INVALID_REQUEST),
        (change(CLIENT_METRICS, "m"), ErrorCode.INVALID_REQUEST),
        (change(99, "x"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_the_wire_shows_to_be_wrong_is_not_asked_for(
    wrong: dict[str, Any], code: ErrorCode
) -> None:
    services = make_services(done)
    reply = ask("incremental_alter_configs", 1, services=services, resources=[wrong])
    (answer,) = reply["responses"]
    assert answer["error_code"] == code
    assert answer["error_message"]
    assert requests_of(services) == []


@pytest.mark.parametrize(
    "nothing",
    [
        change(TOPIC, "orders"),
        change(TOPIC, "orders", ("retention.ms", DELETE, None), ("nowhere", DELETE, "x")),
        change(BROKER, "1"),
        change(BROKER, ""),
    ],
)
def test_what_changes_nothing_is_done_already(nothing: dict[str, Any]) -> None:
    (answer,) = ask("incremental_alter_configs", 1, resources=[nothing])["responses"]
    assert (answer["error_code"], answer["error_message"]) == (0, None)


@pytest.mark.parametrize(
    "name", ["2", "-1", "01", "+1", "x", "+", " 1", "1 ", "0x1", "\U0001d7cf", "1" * 5_000]
)
def test_no_other_id_is_ours(name: str) -> None:
    (result,) = describe(configured(), resource(BROKER, name))
    assert (result["error_code"], result["configs"]) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(("operation", "name"), [(APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")])
def test_an_operation_on_a_list_is_refused_by_its_name(operation: int, name: str) -> None:
    """Kafka: ConfigAdminManager, whose words these are."""
    wrong = change(GROUP, "g", (SESSION, operation, "1"))
    (answer,) = ask("incremental_alter_configs", 1, resources=[wrong])["responses"]
    said = f"Can't {name} to key {SESSION} because its type is not LIST."
    assert answer["error_message"] == said


def test_a_resource_that_comes_twice_is_refused_twice() -> None:
    services = make_services(done)
    resources = [change(GROUP, "g"), change(GROUP, "other"), change(GROUP, "g")]
    reply = ask("incremental_alter_configs", 1, services=services, resources=resources)
    assert [r["error_code"] for r in reply["responses"]] == [42, 0, 42]
    assert [g.group_id for g in requests_of(services)[0].groups] == ["other"]


def test_an_error_of_the_whole_goes_to_every_group_that_was_asked_for() -> None:
    reply = ask(
        "incremental_alter_configs",
        1,
        lambda _: AlterGroupConfigsResult(ErrorCode.NOT_CONTROLLER),
        resources=[change(GROUP, "a"), change(TOPIC, "absent"), change(GROUP, "b")],
    )
    assert [r["error_code"] for r in reply["responses"]] == [41, 3, 41]


# --- ListConfigResources


def listed(services: Services, *kinds: int) -> dict[str, Any]:
    return ask("list_config_resources", 1, services=services, resource_types=kinds)


def test_version_0_lists_client_metrics_alone_and_there_are_none() -> None:
    reply = ask("list_config_resources", 0, services=configured(g={SESSION: "46000"}))
    assert (reply["error_code"], reply["config_resources"]) == (0, [])


@pytest.mark.parametrize(
    ("kinds", "shown"),
    [
        ((), [(TOPIC, "orders"), (BROKER, "1"), (GROUP, "g"), (GROUP, "h")]),
        ((GROUP,), [(GROUP, "g"), (GROUP, "h")]),
        ((GROUP, TOPIC), [(TOPIC, "orders"), (GROUP, "g"), (GROUP, "h")]),
        ((BROKER,), [(BROKER, "1")]),
        ((BROKER_LOGGER,), []),
        ((CLIENT_METRICS,), []),
    ],
)
def test_what_has_configs_is_listed_by_type(
    kinds: tuple[int, ...], shown: list[tuple[int, str]]
) -> None:
    services = configured(g={SESSION: "46000"}, h={"commit.monotonic": "true"})
    reply = listed(services, *kinds)
    assert reply["error_code"] == 0
    found = [(r["resource_type"], r["resource_name"]) for r in reply["config_resources"]]
    assert found == shown


@pytest.mark.parametrize("kinds", [(0,), (99,), (GROUP, 64), (-1,)])
def test_a_type_that_is_not_known_fails_the_whole(kinds: tuple[int, ...]) -> None:
    reply = listed(configured(g={SESSION: "46000"}), *kinds)
    assert (reply["error_code"], reply["config_resources"]) == (35, [])


# --- What it may cost


@pytest.mark.parametrize(
    ("api", "version", "element", "weight"),
    [
        ("describe_configs", 4, resource(GROUP, "g"), 10),
        ("incremental_alter_configs", 1, change(GROUP, "g"), 10),
    ],
)
def test_a_resource_counts_as_several_elements(
    api: str, version: int, element: dict[str, Any], weight: int
) -> None:
    services = make_services(max_request_elements=100)
    begin(services, api, version, resources=[element] * (100 // weight))
    with pytest.raises(ProtocolError, match="too_many_elements"):
        begin(services, api, version, resources=[element] * (100 // weight + 1))
