"""What has configs: the resources that the APIs of configs name."""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def broker_name_error(name: str, node_id: int) -> str | None:
    """Say what is wrong with the name of a broker; None where it is ours, or "" for all."""
    if name in ("", str(node_id)):
        return None
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return f"Broker id must be an integer, but it is: {name}"
    return f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
