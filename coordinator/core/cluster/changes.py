"""Changes the configs of groups (docs/spec/administration.md#group-configs). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from groupkeeper.coordinator.core.cluster.group_configs import (
    CONFIG_KEYS,
    config_error,
    normal_value,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    AdminAction,
    of_client,
)
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.records import GroupConfigs
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    AlterGroupConfigsResult,
    GroupConfigChange,
    GroupConfigResult,
)

_CONFIG_BYTES = 256
"""An upper bound of the size of one key with its value, in the record and the event together."""
_BYTES_PER_CHAR = 18
"""The largest number of bytes that one character of a group id needs: six in JSON, once in the
record and twice in the event.
"""


def alter_configs(
    configs: Mapping[str, Mapping[str, str]], request: AlterGroupConfigs, limits: CoreLimits
) -> tuple[AlterGroupConfigsResult, list[GroupConfigs], list[AdminAction]]:
    """Check each group of the request. Return the answer, the records and the events to write."""
    changes = _Changes(configs, limits)
    results = tuple(changes.check(change) for change in request.groups)
    events = [_event(request.client, record.group_id, detail) for record, detail in changes.made]
    records = [record for record, _ in changes.made]
    return AlterGroupConfigsResult(ErrorCode.NONE, results), records, events


class _Changes:
    def __init__(self, configs: Mapping[str, Mapping[str, str]], limits: CoreLimits) -> None:
        self.made: list[tuple[GroupConfigs, str]] = []
        """(record, the change in words for the event)."""
        self._configs = configs
        self._count = len(configs)
        self._limits = limits
        self._bytes = 0

    def check(self, change: GroupConfigChange) -> GroupConfigResult:
        group_id = change.group_id
        if group_id == "":
            message = "Default group resources are not allowed."
            return GroupConfigResult(group_id, ErrorCode.INVALID_REQUEST, message)
        old = self._configs.get(group_id, {})
        new = {key: value for key, value in old.items() if key in CONFIG_KEYS}
        for key, value in change.changes:
            if value is None:
                new.pop(key, None)
            else:
                new[key] = value
        wrong = config_error(new, self._limits)
        if wrong is not None:
            return GroupConfigResult(group_id, ErrorCode.INVALID_CONFIG, wrong)
        new = {key: normal_value(CONFIG_KEYS[key], value) for key, value in new.items()}
        no_room = self._no_room(group_id, old, new)
        if no_room is not None:
            return GroupConfigResult(group_id, ErrorCode.POLICY_VIOLATION, no_room)
        if new != old:
            self.made.append((GroupConfigs(group_id, new), _detail(old, new)))
        return GroupConfigResult(group_id, ErrorCode.NONE, None)

    def _no_room(self, group_id: str, old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
        limits = self._limits
        count = self._count + bool(new) - bool(old)
        if count > max(self._count, limits.max_configured_groups):
            return f"More than {limits.max_configured_groups} groups with configs of their own."
        size = (
            self._bytes
            + _BYTES_PER_CHAR * len(group_id)
            + _CONFIG_BYTES * (1 + len(new) + len(old))
        )
        if size > limits.max_step_bytes:
            return "The request changes too much at once: send it in parts."
        self._count, self._bytes = count, size
        return None


def _detail(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    words = [f"{key}={value}" for key, value in new.items() if old.get(key) != value]
    return " ".join([*words, *[f"-{key}" for key in old if key not in new]])


def _event(client: Client, group_id: str, detail: str) -> AdminAction:
    return AdminAction(
        group_id=group_id,
        **of_client(client),
        api="IncrementalAlterConfigs",
        action="alter_group_configs",
        target=group_id,
        detail=detail,
    )
