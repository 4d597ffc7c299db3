"""What the consumers of tests tell their library of themselves, in each library's own names."""

from __future__ import annotations

from typing import Any, Protocol


class GroupMember(Protocol):
    """Who a member of a group is."""

    @property
    def bootstrap(self) -> str:
        """Where its coordinator is, HOST:PORT."""

    @property
    def name(self) -> str:
        """Its client id."""

    @property
    def group(self) -> str:
        """The group it joins."""

    @property
    def instance(self) -> str | None:
        """Its instance id, if it is static."""

    @property
    def session_ms(self) -> int:
        """Without a heartbeat for so long it is dead."""

    @property
    def heartbeat_ms(self) -> int:
        """From one heartbeat to the next."""


def python_settings(member: GroupMember) -> dict[str, Any]:
    """For the constructors of aiokafka and kafka-python, which agree in these."""
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
    """For librdkafka, which keeps its log to itself and begins at the start."""
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
