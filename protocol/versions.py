"""The APIs that we serve: the versions that we read, those that we advertise, and the differences
from a broker.

The numbers are those of Apache Kafka 4.3.1 (docs/design.md#versions). For the APIs that we serve,
ApiVersions lists exactly Kafka's ranges. Old clients send some versions that Kafka 4 removed,
without asking for ApiVersions first. We serve these but do not advertise them
(docs/spec/wire.md#old-versions). docs/reference/protocol-support.md is printed from this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple


class ApiKey(IntEnum):
    """Kafka's numbers of the APIs that we serve."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    ADD_OFFSETS_TO_TXN = 25
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: its versions, and how it differs from a broker's."""

    key: ApiKey
    name: str
    """Kafka's spelling: ``JoinGroup``."""
    min_version: int
    """The lowest version with a schema in Kafka 4.3.1 that we serve."""
    max_version: int
    first_flexible: int
    """The first version with compact lengths, tagged fields and header v2."""
    advertised_min: int
    """The lowest version in ApiVersions. It may differ from the lowest served one: see ``notes``.
    """
    lowest_served: int
    """The lowest version that we read. It is less than ``min_version`` if old clients send versions
    that Kafka 4 removed."""
    notes: tuple[str, ...] = field(default=())
    """Differences from a broker, for docs/reference/protocol-support.md."""

    def serves(self, version: int) -> bool:
        """Return True if we read requests of this version."""
        return self.lowest_served <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Return True if this version has compact lengths and tagged fields."""
        return version >= self.first_flexible


def _api(  # noqa: PLR0913  one line of a table
    key: ApiKey,
    name: str,
    min_version: int,
    max_version: int,
    first_flexible: int,
    *notes: str,
    advertised_min: int | None = None,
    lowest_served: int | None = None,
) -> Api:
    return Api(
        key=key,
        name=name,
        min_version=min_version,
        max_version=max_version,
        first_flexible=first_flexible,
        advertised_min=min_version if advertised_min is None else advertised_min,
        lowest_served=min_version if lowest_served is None else lowest_served,
        notes=notes,
    )


NEVER_FLEXIBLE: Final = 32_767
"""A value of ``first_flexible``: no version is flexible."""

_CONSUMER_GROUPS = (
    "Answered with UNSUPPORTED_VERSION if consumer is not in group.rebalance_protocols."
)
_NO_RECORDS = "There are no messages here"

APIS: Final[tuple[Api, ...]] = (
    _api(
        ApiKey.PRODUCE,
        "Produce",
        3,
        13,
        9,
        f"{_NO_RECORDS}: every partition is refused with POLICY_VIOLATION.",
        "As in Kafka, 0-2 are advertised for old librdkafka, but a request in one of these "
        "versions closes the connection.",
        advertised_min=0,
    ),
    _api(
        ApiKey.FETCH,
        "Fetch",
        4,
        18,
        12,
        f"{_NO_RECORDS}: a request waits and gets nothing. An offset above the partition's end "
        "gets OFFSET_OUT_OF_RANGE.",
        "There are no fetch sessions: an incremental fetch gets FETCH_SESSION_ID_NOT_FOUND.",
    ),
    _api(
        ApiKey.LIST_OFFSETS,
        "ListOffsets",
        1,
        11,
        6,
        "EARLIEST (-2, -4) returns 0, LATEST (-1) the partition's end, and any other timestamp -1.",
    ),
    _api(ApiKey.METADATA, "Metadata", 0, 13, 9, "groupkeeper is the leader of all."),
    _api(
        ApiKey.OFFSET_COMMIT,
        "OffsetCommit",
        2,
        10,
        8,
        "0-1 are served but not advertised, because some clients send them without asking which "
        "versions are served. The timestamp of version 1 is ignored.",
        lowest_served=0,
    ),
    _api(
        ApiKey.OFFSET_FETCH,
        "OffsetFetch",
        1,
        10,
        6,
        "0 is served but not advertised, and works like 1.",
        lowest_served=0,
    ),
    _api(ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 3),
    _api(ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 6),
    _api(ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 4),
    _api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
    _api(ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 4),
    _api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5),
    _api(ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 3),
    _api(
        ApiKey.API_VERSIONS,
        "ApiVersions",
        0,
        4,
        3,
        "Any other version gets UNSUPPORTED_VERSION in the layout of version 0, as in Kafka.",
    ),
    _api(ApiKey.CREATE_TOPICS, "CreateTopics", 2, 7, 5),
    _api(ApiKey.DELETE_TOPICS, "DeleteTopics", 1, 6, 4),
    _api(
        ApiKey.DESCRIBE_CONFIGS,
        "DescribeConfigs",
        1,
        4,
        4,
        "For groups, topics and the broker. Loggers and client metrics get INVALID_REQUEST.",
    ),
    _api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
    _api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
    _api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "IncrementalAlterConfigs",
        0,
        1,
        1,
        "For groups. Configs of topics and of the broker are read-only (POLICY_VIOLATION).",
    ),
    _api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, NEVER_FLEXIBLE),
    _api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0, _CONSUMER_GROUPS),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0, _CONSUMER_GROUPS),
    _api(
        ApiKey.LIST_CONFIG_RESOURCES,
        "ListConfigResources",
        0,
        1,
        0,
        "Lists groups that have configs, topics and the broker. There are no loggers and no client "
        "metrics.",
    ),
)
"""All APIs that we serve in static mode, by key."""

GATEWAY_APIS: Final[tuple[Api, ...]] = (
    _api(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3),
    _api(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 3),
)
"""The APIs that we serve only in gateway mode: they need a cluster with transactions."""

API_BY_KEY: Final[dict[int, Api]] = {int(api.key): api for api in APIS}
"""All APIs that we serve in static mode, by their number on the wire."""

KNOWN_API_BY_KEY: Final[dict[int, Api]] = API_BY_KEY | {int(api.key): api for api in GATEWAY_APIS}
"""All APIs that we serve in any mode, by their number on the wire."""


class Feature(NamedTuple):
    """A feature, as in ApiVersions v3+: its name, the supported levels, and the level in use."""

    name: str
    min_version: int
    max_version: int
    finalized: int


FEATURES: Final[tuple[Feature, ...]] = (Feature("group.version", 0, 1, 1),)
"""Finalized features: only ``group.version`` (docs/design.md#versions)."""
