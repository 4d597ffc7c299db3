"""The durable configs of single groups (docs/spec/administration.md#group-configs).

Configs are records in the cluster shard. The runtime passes these records to this store. Handlers
read the configs here as strings. Each shard of groups reads the overrides of its groups: their
configs in the form that the core uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides, to_overrides
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.records import GroupConfigs, Record
from groupkeeper.coordinator.core.routing import shard_of


class GroupConfigStore:
    """The configs of groups in two forms: as strings by group, and as overrides by shard."""

    def __init__(self, shards: int, limits: CoreLimits) -> None:
        """Start without configs. ``shards`` is the number of shards of groups."""
        self.limits = limits
        """The settings of a group without configs."""
        self._shards = shards
        self._configs: dict[str, Mapping[str, str]] = {}
        self._overrides: dict[int, Mapping[str, GroupOverrides]] = {}

    def of(self, group_id: str) -> Mapping[str, str]:
        """Return the configs of a group, by key."""
        return self._configs.get(group_id, {})

    def groups(self) -> list[str]:
        """Return the ids of the groups that have at least one config."""
        return list(self._configs)

    def overrides(self, shard_id: int) -> Mapping[str, GroupOverrides]:
        """Return the overrides of the groups in a shard. The mapping is never changed, only
        replaced.
        """
        return self._overrides.get(shard_id, {})

    def replace(self, configs: Mapping[str, Mapping[str, str]]) -> set[int]:
        """Replace all configs after a load. Return the shards whose overrides changed."""
        changed = {g: configs.get(g, {}) for g in configs.keys() | self._configs.keys()}
        return self._take(changed)

    def apply(self, records: Iterable[Record]) -> set[int]:
        """Apply durable records of the cluster shard. Return the shards whose overrides changed."""
        found = [record for record in records if isinstance(record, GroupConfigs)]
        return self._take({record.group_id: record.configs for record in found})

    def _take(self, changed: Mapping[str, Mapping[str, str]]) -> set[int]:
        by_shard: dict[int, dict[str, GroupOverrides]] = {}
        for group_id, configs in changed.items():
            if configs == self.of(group_id):
                continue
            shard_id = shard_of(group_id, self._shards)
            overrides = by_shard.setdefault(shard_id, dict(self.overrides(shard_id)))
            if configs:
                self._configs[group_id] = configs
                overrides[group_id] = to_overrides(configs, self.limits)
            else:
                del self._configs[group_id]
                del overrides[group_id]
        self._overrides |= by_shard
        return set(by_shard)
