"""Which handler answers which API, and every (key, version) that is served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from groupkeeper.coordinator.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)
from groupkeeper.coordinator.handlers.configs import (
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.protocol.versions import APIS, ApiKey

Handle: TypeAlias = Callable[[Exchange, Services], None]
"""Reads the body, and answers or submits. Raises ProtocolError on a body that cannot be."""

HANDLERS: Final[dict[ApiKey, Handle]] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.OFFSET_COMMIT: offset_commit.handle,
    ApiKey.OFFSET_FETCH: offset_fetch.handle,
    ApiKey.FIND_COORDINATOR: find_coordinator.handle,
    ApiKey.JOIN_GROUP: join_group.handle,
    ApiKey.HEARTBEAT: heartbeat.handle,
    ApiKey.LEAVE_GROUP: leave_group.handle,
    ApiKey.SYNC_GROUP: sync_group.handle,
    ApiKey.DESCRIBE_GROUPS: describe_groups.handle,
    ApiKey.LIST_GROUPS: list_groups.handle,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.CREATE_TOPICS: create_topics.handle,
    ApiKey.DELETE_TOPICS: delete_topics.handle,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.handle,
    ApiKey.CREATE_PARTITIONS: create_partitions.handle,
    ApiKey.DELETE_GROUPS: delete_groups.handle,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    ApiKey.OFFSET_DELETE: offset_delete.handle,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.handle,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources.handle,
}
"""By API: one file each."""

ROUTES: Final[dict[tuple[int, int], Handle]] = {
    (int(api.key), version): HANDLERS[api.key]
    for api in APIS
    for version in range(api.lowest_served, api.max_version + 1)
}
"""By (key, version): what a connection looks up."""
