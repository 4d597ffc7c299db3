"""Administration of group configs: docs/spec/administration.md#group-configs."""

from __future__ import annotations

from typing import Any

from groupkeeper.coordinator.core.cluster.group_configs import CONFIG_KEYS, ConfigKind
from tests.conformance.kafka.allowed import OUR_KEYS
from tests.conformance.kafka.case import Case, edge
from tests.conformance.kafka.settings import TOPIC
from tests.helpers.wire.raw_client import RawClient

SESSION = "consumer.session.timeout.ms"
TOPIC_KIND, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def change(kind: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
    """One resource of IncrementalAlterConfigs."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": n, "config_operation": o, "value": v} for n, o, v in configs],
    }


def changes(group: str) -> list[dict[str, Any]]:
    """Good and bad ones."""
    values = ("x", "", "1", "44999", "45000", "60000", "60001", "46000.0", "0046000", None)
    return [
        *[change(GROUP, group, (SESSION, SET, value)) for value in values],
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
        change(0, group),
        change(99, group),
        change(TOPIC_KIND, "absent", ("retention.ms", SET, "1")),
        change(BROKER, "9", ("log.cleaner.threads", SET, "1")),
        change(BROKER, "x", ("log.cleaner.threads", SET, "1")),
    ]


def describe(
    case: Case, resources: list[tuple[int, str]], keys: list[str] | None = None, **more: Any
) -> None:
    """DescribeConfigs of what both have."""

    def without_ours(answer: dict[str, Any]) -> dict[str, Any]:
        for result in answer["results"]:
            result["configs"] = [c for c in result["configs"] if _is_of_both(c["name"])]
        return answer

    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name in resources
    ]
    version = case.v("describe_configs")
    case.pair.steps.append(f"looking at configs: {asked} {more}")
    case.pair.ask_until_equal("describe_configs", version, without_ours, resources=asked, **more)


def _is_of_both(key: str) -> bool:
    return key not in OUR_KEYS and not key.startswith("share.")


@edge()
def configs_are_altered(case: Case) -> None:
    version = case.v("incremental_alter_configs")
    for one in changes(case.group):
        for validate_only in (True, False):
            case.pair.ask(
                "incremental_alter_configs", version, resources=[one], validate_only=validate_only
            )
    describe(case, [(GROUP, case.group)], include_synonyms=True)


@edge()
def the_bounds_of_every_key(case: Case) -> None:
    for key in CONFIG_KEYS.values():
        if key.kind is ConfigKind.INT and key.name not in OUR_KEYS:
            for value in (key.least - 1, key.least, key.most, key.most + 1):
                _alter(case, change(GROUP, case.group, (key.name, SET, str(value))))


@edge()
def numbers_that_neither_takes(case: Case) -> None:
    for text in ("-46000", "+", "46_000", "\u221246000", "\U0001d7d26000", "\u00b2", "46000L"):
        _alter(case, change(GROUP, case.group, (SESSION, SET, text)))
    for text in ("\u00a046000", "46000\u2003"):
        _alter(case, change(GROUP, case.group, (SESSION, SET, text)))


@edge()
def numbers_in_every_script(case: Case) -> None:
    for text in ("\uff14\uff16\uff10\uff10\uff10", "\0046000"):
        _alter(case, change(GROUP, case.group, (SESSION, SET, text)))


@edge()
def configs_of_share_groups(case: Case) -> None:
    _alter(case, change(GROUP, case.group, ("share.isolation.level", SET, "read_committed")))


@edge()
def configs_are_altered_together(case: Case) -> None:
    version = case.v("incremental_alter_configs")
    group = case.group
    twice = [change(GROUP, group), change(GROUP, f"{group}-other"), change(GROUP, group)]
    several = [
        change(GROUP, f"{group}-a", (SESSION, SET, "47000")),
        change(GROUP, f"{group}-b", (SESSION, SET, "x")),
        change(GROUP, f"{group}-c", (SESSION, SET, "48000")),
    ]
    for resources in (twice, several):
        case.pair.ask(
            "incremental_alter_configs", version, resources=resources, validate_only=False
        )
    case.pair.ask_until_equal("list_config_resources", 1, resource_types=[GROUP])


@edge()
def configs_are_described(case: Case) -> None:
    pair = change(
        GROUP, case.group, (SESSION, SET, "47000"), ("streams.num.standby.replicas", SET, "1")
    )
    case.pair.ask("incremental_alter_configs", 1, resources=[pair], validate_only=False)
    both = [(GROUP, case.group), (GROUP, "absent")]
    for more in (False, True):
        for keys in (None, [], [SESSION], [SESSION, "nowhere"], ["nowhere"]):
            describe(case, both, keys, include_synonyms=more, include_documentation=more)
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
        describe(case, [(kind, name)])


@edge()
def config_resources_are_listed(case: Case) -> None:
    one = change(GROUP, case.group, (SESSION, SET, "47000"))
    case.pair.ask("incremental_alter_configs", 1, resources=[one], validate_only=False)
    case.pair.ask_until_equal("list_config_resources", 1, resource_types=[GROUP])
    case.pair.ask("list_config_resources", 0)
    for kinds in ([CLIENT_METRICS], [BROKER], [0], [64], [99], [GROUP, 99], [-1]):
        case.pair.ask("list_config_resources", 1, resource_types=kinds)


def _alter(case: Case, *configs: dict[str, Any]) -> None:
    version = case.v("incremental_alter_configs")
    for one in configs:
        case.pair.ask("incremental_alter_configs", version, resources=[one], validate_only=True)


def _show(case: Case, *resources: tuple[int, str]) -> None:
    for kind, name in resources:
        asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
        case.pair.ask("describe_configs", case.v("describe_configs"), resources=asked)


@edge()
def configs_of_a_topic(case: Case) -> None:
    _alter(
        case,
        change(TOPIC_KIND, TOPIC, ("retention.ms", SET, "600000")),
        change(TOPIC_KIND, TOPIC, ("cleanup.policy", APPEND, "compact")),
        change(TOPIC_KIND, TOPIC, ("cleanup.policy", SUBTRACT, "delete")),
    )
    _show(case, (TOPIC_KIND, TOPIC))


@edge()
def configs_of_the_broker(case: Case) -> None:
    _alter(
        case,
        *[
            change(BROKER, "1", ("log.cleaner.threads", operation, value))
            for operation, value in ((SET, "1"), (SET, "x"), (APPEND, "1"), (DELETE, None))
        ],
        change(BROKER, "1", ("no.such", SET, "1")),
        change(BROKER_LOGGER, "1", ("root", SET, "WARN")),
        change(BROKER_LOGGER, "1", ("no.such.logger", SET, "WARN")),
        change(BROKER_LOGGER, "1"),
        change(CLIENT_METRICS, "m", ("interval.ms", SET, "1000")),
        change(CLIENT_METRICS, "m", ("interval.ms", APPEND, "1000")),
        change(CLIENT_METRICS, "m", ("interval.ms", 7, "1000")),
        change(CLIENT_METRICS, "m"),
    )
    _show(case, (BROKER, "1"))
    _show(case, (BROKER_LOGGER, "1"), (CLIENT_METRICS, "m"))


@edge()
def names_of_brokers(case: Case) -> None:
    for name in (
        *("2", "-1", "x", "+", " 1", "1 ", "0x1", "1L", "99999999999", "1" * 200, "\U0001d7cf"),
    ):
        _show(case, (BROKER, name))
        _alter(
            case,
            change(BROKER, name),
            change(BROKER, name, ("log.cleaner.threads", SET, "1")),
            change(BROKER, name, ("log.cleaner.threads", 7, "1")),
        )
    for name in ("", "1"):
        _alter(case, change(BROKER, name), change(BROKER, name, ("log.cleaner.threads", 7, "1")))


@edge()
def other_spellings_of_a_brokers_id(case: Case) -> None:
    for name in ("01", "+1", "\uff11"):
        _alter(case, change(BROKER, name))


@edge()
def configs_of_our_own(case: Case) -> None:
    _alter(case, change(GROUP, case.group, ("commit.monotonic", SET, "true")))
    _show(case, (GROUP, case.group))


@edge()
def an_unknown_operation(case: Case) -> None:
    _alter(case, change(GROUP, case.group, (SESSION, 7, "46000")))
    for name in (TOPIC, "absent", "bad name", ""):
        _alter(case, change(TOPIC_KIND, name, ("retention.ms", 7, "1")))


@edge()
def a_value_with_spaces_around_it(case: Case) -> None:
    one = change(GROUP, case.group, (SESSION, SET, " 46000 "))
    version = case.v("incremental_alter_configs")
    case.pair.ask("incremental_alter_configs", version, resources=[one], validate_only=False)
    describe(case, [(GROUP, case.group)])
    case.pair.ask("list_config_resources", 1, resource_types=[GROUP])


@edge()
def client_metrics_are_listed(case: Case) -> None:
    """They are set on Kafka alone: we refuse that (``configs_of_the_broker``)."""
    version = case.v("list_config_resources")
    with RawClient(case.pair.ports[0]) as kafka:
        for operation in (SET, DELETE):
            one = change(CLIENT_METRICS, case.group, ("interval.ms", operation, "1000"))
            kafka.call("incremental_alter_configs", 1, resources=[one], validate_only=False)
            case.wait(300)
            case.pair.ask("list_config_resources", version, resource_types=[CLIENT_METRICS])
