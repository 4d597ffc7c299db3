"""Every API that is served: its handler, and the operation that a client must be allowed."""

from __future__ import annotations

from typing import Final

from groupkeeper.coordinator.handlers import (
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
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
from groupkeeper.coordinator.handlers.routes import Operation, Resource, Route, Routes
from groupkeeper.protocol.versions import ApiKey

APIS_SERVED: Final[dict[ApiKey, Route]] = {
    ApiKey.PRODUCE: Route(produce.handle, Operation.WRITE, Resource.TOPIC),
    ApiKey.FETCH: Route(fetch.handle, Operation.READ, Resource.TOPIC),
    ApiKey.LIST_OFFSETS: Route(list_offsets.handle, Operation.DESCRIBE, Resource.TOPIC),
    ApiKey.METADATA: Route(metadata.handle, Operation.DESCRIBE, Resource.TOPIC),
    ApiKey.OFFSET_COMMIT: Route(offset_commit.handle, Operation.READ, Resource.GROUP),
    ApiKey.OFFSET_FETCH: Route(offset_fetch.handle, Operation.DESCRIBE, Resource.GROUP),
    ApiKey.FIND_COORDINATOR: Route(find_coordinator.handle, Operation.DESCRIBE, Resource.GROUP),
    ApiKey.JOIN_GROUP: Route(join_group.handle, Operation.READ, Resource.GROUP),
    ApiKey.HEARTBEAT: Route(heartbeat.handle, Operation.READ, Resource.GROUP),
    ApiKey.LEAVE_GROUP: Route(leave_group.handle, Operation.READ, Resource.GROUP),
    ApiKey.SYNC_GROUP: Route(sync_group.handle, Operation.READ, Resource.GROUP),
    ApiKey.DESCRIBE_GROUPS: Route(describe_groups.handle, Operation.DESCRIBE, Resource.GROUP),
    ApiKey.LIST_GROUPS: Route(list_groups.handle, Operation.DESCRIBE, Resource.GROUP),
    ApiKey.API_VERSIONS: Route(api_versions.handle),
    ApiKey.CREATE_TOPICS: Route(create_topics.handle, Operation.CREATE, Resource.TOPIC),
    ApiKey.DELETE_TOPICS: Route(delete_topics.handle, Operation.DELETE, Resource.TOPIC),
    ApiKey.DESCRIBE_CONFIGS: Route(
        describe_configs.handle, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER
    ),
    ApiKey.CREATE_PARTITIONS: Route(create_partitions.handle, Operation.ALTER, Resource.TOPIC),
    ApiKey.DELETE_GROUPS: Route(delete_groups.handle, Operation.DELETE, Resource.GROUP),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(
        incremental_alter_configs.handle, Operation.ALTER_CONFIGS, Resource.CLUSTER
    ),
    ApiKey.OFFSET_DELETE: Route(offset_delete.handle, Operation.DELETE, Resource.GROUP),
    ApiKey.DESCRIBE_CLUSTER: Route(describe_cluster.handle),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Route(
        consumer_group_heartbeat.handle, Operation.READ, Resource.GROUP
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Route(
        consumer_group_describe.handle, Operation.DESCRIBE, Resource.GROUP
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Route(
        list_config_resources.handle, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER
    ),
}
"""Every API, with its handler and the permission that a client needs. Operations and resources are
those that Kafka checks (KafkaApis and ControllerApis). ApiVersions and DescribeCluster need no
permission."""

ROUTES: Final = Routes(APIS_SERVED)
"""The routes of a listener on which every operation is allowed."""
