"""The settings reach the parts: what a part would take by default is what the settings say."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from groupkeeper.coordinator.core.bounds import bounds_of
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.daemon.app import (
    allowed_connections,
    coordinator_config,
    seal_settings,
    server_limits,
)
from groupkeeper.coordinator.daemon.config import (
    KafkaSettings,
    LogSettings,
    OffsetsSettings,
    Settings,
    StorageSettings,
)
from groupkeeper.coordinator.daemon.group_settings import GroupSettings
from groupkeeper.coordinator.daemon.process import Connections
from groupkeeper.coordinator.daemon.setting_names import coordinators_names, setting_names
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER, SealSettings


def test_the_coordinator_gets_the_defaults_that_it_has_by_itself_but_for_the_initial_delay():
    config = coordinator_config(Settings())
    delay_ms = config.initial_rebalance_delay_ms
    assert delay_ms == CoreLimits().initial_rebalance_delay_ms == 3_000
    by_itself = CoordinatorConfig(initial_rebalance_delay_ms=delay_ms, owner=config.owner)
    assert config == replace(by_itself, drain_timeout_ms=config.drain_timeout_ms)


def test_the_coordinator_stops_within_the_time_of_the_daemon_and_leaves_some_for_replies():
    config = coordinator_config(Settings(daemon={"drain_timeout_ms": 1_000}))
    assert config.drain_timeout_ms == 850


NUMBERS_OF_CONSUMER_GROUPS = sorted(
    name for name in bounds_of(CoreLimits) if name.startswith("consumer_")
)


@pytest.mark.parametrize(
    ("section", "key", "name"),
    [
        ("group", "min_session_timeout_ms", "min_session_timeout_ms"),
        ("group", "max_session_timeout_ms", "max_session_timeout_ms"),
        ("group", "initial_rebalance_delay_ms", "initial_rebalance_delay_ms"),
        ("group", "max_size", "group_max_size"),
        *[("group", name, name) for name in NUMBERS_OF_CONSUMER_GROUPS],
        ("offsets", "retention_minutes", "offsets_retention_ms"),
        ("offsets", "retention_check_interval_ms", "retention_check_interval_ms"),
        ("offsets", "metadata_max_bytes", "offset_metadata_max_bytes"),
        ("offsets", "topic_num_partitions", "shards"),
        ("storage", "append_timeout_ms", "append_timeout_ms"),
        ("storage", "max_group_bytes", "max_group_bytes"),
        ("log", "end_offset_interval_ms", "end_offset_interval_ms"),
    ],
)
def test_what_a_host_may_not_set_the_daemon_refuses_as_well(section, key, name):
    with pytest.raises(ValueError, match=key):
        Settings(**{section: {key: bounds_of(CoordinatorConfig)[name].least - 1}})


ITS_OWN = {
    "cluster_id",
    "max_metadata_bytes",
    "max_remembered_groups",
    "offsets_retention_ms",
    "owner",
}
"""What ``coordinator_config`` makes of other settings."""
A_HOSTS_ALONE = {
    "default_rebalance_timeout_ms",
    "default_session_timeout_ms",
    "events_delay_ms",
    "fold_idle_ms",
    "heartbeat_check_interval_ms",
    "load_slice_ms",
    "max_configured_groups",
    "max_gathered_bytes",
    "max_gathered_requests",
    "max_merged_members",
    "max_partitions",
    "max_riding_events",
    "max_step_bytes",
    "max_waiting_work",
    "merge_window_ms",
    "renew_interval_ms",
    "retry_max_ms",
    "retry_min_ms",
}
"""What works the same in every daemon."""


def test_each_setting_of_a_coordinator_is_one_of_the_daemon_or_a_hosts_alone():
    names = [field.name for field in dataclasses.fields(CoordinatorConfig)]
    assert sorted(names) == sorted([*coordinators_names().values(), *ITS_OWN, *A_HOSTS_ALONE])


def test_each_setting_of_consumer_groups_reaches_the_coordinator():
    changed = {
        "rebalance_protocols": ("classic",),
        "consumer_assignors": ("range",),
        "consumer_migration_policy": "upgrade",
        "consumer_max_size": 7,
        "consumer_regex_refresh_interval_ms": 20_000,
        **{
            f"consumer_{which}{name}": value
            for name, values in (
                ("session_timeout_ms", (46_000, 47_000, 48_000)),
                ("heartbeat_interval_ms", (6_000, 7_000, 8_000)),
                ("assignment_interval_ms", (1, 2, 3)),
            )
            for which, value in zip(("min_", "", "max_"), values, strict=True)
        },
    }
    config = coordinator_config(Settings(group=changed))
    assert {name: getattr(config, name) for name in changed} == changed
    of_the_core = {each.name for each in dataclasses.fields(CoreLimits)}
    wanted = {n for n in of_the_core if n.startswith("consumer_")} | {"rebalance_protocols"}
    assert changed.keys() == wanted


def test_each_setting_of_the_coordinator_reaches_it():
    default = coordinator_config(Settings())
    changed = {}
    for name, theirs in coordinators_names().items():
        section, key = name.split(".")
        if key.startswith("consumer_") or key == "rebalance_protocols":
            continue  # they have their own test, since each depends on others
        value = getattr(getattr(Settings(), section), key) - 1
        config = coordinator_config(Settings(**{section: {key: value}}))
        changed[theirs] = getattr(default, theirs) - getattr(config, theirs)
    assert changed == dict.fromkeys(changed, 1)  # the drain's 85 % of 1 ms are rounded up


def test_no_setting_is_declared_and_never_read():
    daemon = Path(__file__).parents[4] / "coordinator" / "daemon"
    read = {each.name for each in dataclasses.fields(ServerLimits)}
    for path in daemon.glob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        read |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    others = set(setting_names()) - coordinators_names().keys()
    assert sorted(name for name in others if name.split(".")[1] not in read) == []


def test_the_kafka_port_gets_the_defaults_that_it_has_by_itself():
    assert server_limits(Settings(), 10_000) == ServerLimits()
    defaults = {field.name: field.default for field in dataclasses.fields(Services)}
    for name in ("max_request_elements", "max_reply_bytes"):
        assert getattr(Settings().kafka, name) == defaults[name]


def test_every_limit_of_the_kafka_port_that_is_a_setting_reaches_it():
    names = {field.name for field in dataclasses.fields(ServerLimits)}
    names -= {"max_turn_bytes", "max_turn_requests", "max_turn_s"}
    changed = {name: getattr(ServerLimits(), name) + 1 for name in names}
    settings = Settings(kafka=changed)
    limits = server_limits(settings, settings.kafka.max_connections)
    assert {name: getattr(limits, name) for name in names} == changed


def test_the_kafka_port_takes_no_more_than_the_system_allows(monkeypatch):
    monkeypatch.setattr(
        "groupkeeper.coordinator.daemon.app.raise_file_limit", lambda *_: Connections(77, 8)
    )
    assert allowed_connections(Settings()) == (77, 8)
    assert server_limits(Settings(), 77).max_connections == 77


def test_group_and_offset_settings_reach_the_core_in_its_units():
    settings = Settings(
        group=GroupSettings(max_size=3, initial_rebalance_delay_ms=1),
        offsets=OffsetsSettings(retention_minutes=2, topic_num_partitions=7, metadata_max_bytes=9),
        storage=StorageSettings(max_group_bytes=5_000),
        kafka=KafkaSettings(cluster_id="another"),
    )
    config = coordinator_config(settings)
    assert config.cluster_id == "another"
    assert config.shards == 7
    assert config.group_max_size == 3
    assert config.initial_rebalance_delay_ms == 1
    assert config.offsets_retention_ms == 120_000
    assert config.offset_metadata_max_bytes == 9
    assert config.max_group_bytes == 5_000


def test_a_store_on_disk_is_sealed_by_default_with_the_defaults_that_sealing_has_by_itself():
    directory = Path("groupkeeper-log").absolute()
    default = SealSettings(directory=directory, retention_ms=30 * 86_400_000)
    assert seal_settings(Settings()) == default


def test_a_store_in_memory_is_sealed_only_when_asked_and_one_on_disk_unless_told_not_to():
    memory, disk = StorageSettings(url="memory:"), StorageSettings()
    wanted = {
        (url, sealing): seal_settings(Settings(storage=url, log=LogSettings(sealing=sealing)))
        is not None
        for url in (memory, disk)
        for sealing in ("auto", "on", "off")
    }
    assert [key for key, is_sealed in wanted.items() if is_sealed] == [
        (memory, "on"),
        (disk, "auto"),
        (disk, "on"),
    ]


def test_the_settings_of_the_event_log_reach_their_parts_in_their_units():
    log = LogSettings(
        dir="/srv/log",
        segment_bytes=5_000,
        segment_ms=700,
        retention_minutes=3,
        end_offset_interval_ms=9,
    )
    assert seal_settings(Settings(log=log)) == SealSettings(
        directory=Path("/srv/log"), segment_bytes=5_000, segment_ms=700, retention_ms=180_000
    )
    assert coordinator_config(Settings(log=log)).end_offset_interval_ms == 9
    for_ever = seal_settings(Settings(log=LogSettings(retention_minutes=-1)))
    assert for_ever is not None
    assert for_ever.retention_ms == FOR_EVER
