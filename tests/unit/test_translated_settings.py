"""The settings reach the parts: what a part would take by default is what the settings say."""

from __future__ import annotations

import dataclasses

from coordinator.app import coordinator_config, server_limits
from coordinator.config import GroupSettings, KafkaSettings, OffsetsSettings, Settings
from coordinator.core.limits import CoreLimits
from coordinator.handlers.services import Services
from coordinator.runtime.settings import CoordinatorConfig
from coordinator.server.limits import ServerLimits


def test_the_coordinator_gets_the_defaults_that_it_has_by_itself_but_for_the_initial_delay():
    config = coordinator_config(Settings())
    delay_ms = config.initial_rebalance_delay_ms
    assert delay_ms == CoreLimits().initial_rebalance_delay_ms == 3_000
    by_itself = CoordinatorConfig(initial_rebalance_delay_ms=delay_ms, owner=config.owner)
    assert config == by_itself


def test_the_kafka_port_gets_the_defaults_that_it_has_by_itself(monkeypatch):
    monkeypatch.setattr("coordinator.app.raise_file_limit", lambda wanted: wanted)
    assert server_limits(Settings()) == ServerLimits()
    defaults = {field.name: field.default for field in dataclasses.fields(Services)}
    for name in ("max_request_elements", "max_reply_bytes"):
        assert getattr(Settings().kafka, name) == defaults[name]


def test_every_limit_of_the_kafka_port_that_is_a_setting_reaches_it(monkeypatch):
    monkeypatch.setattr("coordinator.app.raise_file_limit", lambda wanted: wanted)
    names = {field.name for field in dataclasses.fields(ServerLimits)}
    names -= {"max_turn_bytes", "max_turn_requests"}
    changed = {name: getattr(ServerLimits(), name) + 1 for name in names}
    limits = server_limits(Settings(kafka=changed))
    assert {name: getattr(limits, name) for name in names} == changed


def test_the_kafka_port_takes_no_more_than_the_system_allows(monkeypatch):
    monkeypatch.setattr("coordinator.app.raise_file_limit", lambda _: 77)
    assert server_limits(Settings()).max_connections == 77


def test_group_and_offset_settings_reach_the_core_in_its_units():
    settings = Settings(
        group=GroupSettings(max_size=3, initial_rebalance_delay_ms=1),
        offsets=OffsetsSettings(retention_minutes=2, topic_num_partitions=7, metadata_max_bytes=9),
        kafka=KafkaSettings(cluster_id="another"),
    )
    config = coordinator_config(settings)
    assert config.cluster_id == "another"
    assert config.shards == 7
    assert config.group_max_size == 3
    assert config.initial_rebalance_delay_ms == 1
    assert config.offsets_retention_ms == 120_000
    assert config.offset_metadata_max_bytes == 9
