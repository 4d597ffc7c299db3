"""The settings of test consumers, under the names of each client library."""

from __future__ import annotations

from typing import Any, Protocol


class GroupMember(Protocol):
    """The settings of one member of a group."""

    @property
    def bootstrap(self) -> str:
        """Return HOST:PORT of its coordinator."""

    @property
    def name(self) -> str:
        """Return its client id."""

    @property
    def group(self) -> str:
        """Return the id of the group that it joins."""

    @property
    def instance(self) -> str | None:
        """Return its instance id; None if it is dynamic."""

    @property
    def session_ms(self) -> int:
        """Return the session timeout."""

    @property
    def heartbeat_ms(self) -> int:
        """Return the interval between heartbeats."""


def python_settings(member: GroupMember) -> dict[str, Any]:
    """Return arguments for the constructors of aiokafka and kafka-python, which share them."""
    return {
        "bootstrap_servers": member.bootstrap,
        "client_id": member.name,
        "group_id": member.group,
        "group_instance_id": member.instance,
        "session_timeout_ms": member.session_ms,
        "heartbeat_interval_ms": member.heartbeat_ms,
        "enable_auto_commit": False,
    }


def librdkafka_settings(member: GroupMember) -> dict[str, Any]:
    """Return settings for librdkafka, with little logging, and a start at the first offset."""
    settings: dict[str, Any] = {
        "bootstrap.servers": member.bootstrap,
        "client.id": member.name,
        "group.id": member.group,
        "session.timeout.ms": member.session_ms,
        "heartbeat.interval.ms": member.heartbeat_ms,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "error_cb": lambda error: None,
        "log_level": 0,
    }
    if member.instance is not None:
        settings["group.instance.id"] = member.instance
    return settings
