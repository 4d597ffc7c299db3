"""groupkeeper: a consumer-group coordinator that speaks the Kafka protocol.

The public names are those of ``__all__``. Each is imported at its first use, so ``import
groupkeeper`` takes almost no time. Any other name may change its module between versions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
    from groupkeeper.coordinator.core.assignors.range import RangeAssignor
    from groupkeeper.coordinator.core.assignors.roundrobin import RoundRobinAssignor
    from groupkeeper.coordinator.core.assignors.sticky import StickyAssignor
    from groupkeeper.coordinator.core.assignors.types import (
        Assignment,
        MemberSubscription,
        PartitionAssignor,
        TopicPartition,
    )
    from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
    from groupkeeper.coordinator.core.group_state import GroupState
    from groupkeeper.coordinator.core.records import SavedOffset
    from groupkeeper.coordinator.embed.assignor_plugins import (
        AssignorPluginError,
        get_assignor,
        installed_assignors,
    )
    from groupkeeper.coordinator.embed.commit_log import OffsetCommitLog, replay
    from groupkeeper.coordinator.embed.consumer_messages import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
    from groupkeeper.coordinator.embed.group_metadata import (
        GroupMetadata,
        MemberMetadata,
        MemberState,
    )
    from groupkeeper.coordinator.embed.messages import (
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupMember,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        MemberAssignmentData,
        OffsetCommitData,
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetFetchData,
        OffsetFetchRequest,
        OffsetFetchResponse,
        ProtocolMetadata,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from groupkeeper.coordinator.embed.offset_manager import OffsetManager
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.testkit.faults import Fault
    from groupkeeper.coordinator.testkit.options import ServerOptions
    from groupkeeper.coordinator.testkit.refusals import TestingError
    from groupkeeper.coordinator.testkit.server import GroupkeeperServer, SyncGroupkeeperServer
    from groupkeeper.protocol.consumer_protocol import (
        ConsumerAssignment,
        ConsumerProtocolError,
        Subscription,
        decode_assignment,
        decode_subscription,
        encode_assignment,
        encode_subscription,
    )
    from groupkeeper.storage.backends.host import PersistentOffsetStorage
    from groupkeeper.storage.backends.memory import MemoryOffsetStorage
    from groupkeeper.storage.backends.metadata_store import (
        GroupOffsets,
        MetadataStore,
        OffsetAndMetadata,
    )
    from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
    from groupkeeper.storage.base import (
        OffsetStorage,
        StorageError,
        StoreBusy,
        StoreGivenUp,
        StoreIdentity,
        StoreRefused,
    )
    from groupkeeper.storage.event_log.sealing.sealer import SealSettings
    from groupkeeper.storage.event_log.sealing.storage import SealedStorage
    from groupkeeper.storage.offset_store import OffsetStore
    from groupkeeper.storage.open import open_storage, read_events

__all__ = [
    "Assignment",
    "AssignorPluginError",
    "ConfiguredTopic",
    "ConsumerAssignment",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerProtocolError",
    "CoordinatorConfig",
    "ErrorCode",
    "Fault",
    "GroupCoordinator",
    "GroupError",
    "GroupMetadata",
    "GroupOffsets",
    "GroupState",
    "GroupkeeperServer",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupMember",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "MemberAssignmentData",
    "MemberMetadata",
    "MemberState",
    "MemberSubscription",
    "MemoryOffsetStorage",
    "MetadataStore",
    "OffsetAndMetadata",
    "OffsetCommitData",
    "OffsetCommitLog",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchData",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetManager",
    "OffsetStorage",
    "OffsetStore",
    "PartitionAssignor",
    "PersistentOffsetStorage",
    "ProtocolMetadata",
    "RangeAssignor",
    "RoundRobinAssignor",
    "SavedOffset",
    "SealSettings",
    "SealedStorage",
    "ServerOptions",
    "SqliteOffsetStorage",
    "StickyAssignor",
    "StorageError",
    "StoreBusy",
    "StoreGivenUp",
    "StoreIdentity",
    "StoreRefused",
    "Subscription",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "SyncGroupkeeperServer",
    "TestingError",
    "TopicPartition",
    "Topics",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "get_assignor",
    "installed_assignors",
    "open_storage",
    "read_events",
    "replay",
]

_NAMES: dict[str, str] = {
    "groupkeeper.coordinator.cluster.topics": "ConfiguredTopic Topics",
    "groupkeeper.coordinator.core.assignors.range": "RangeAssignor",
    "groupkeeper.coordinator.core.assignors.roundrobin": "RoundRobinAssignor",
    "groupkeeper.coordinator.core.assignors.sticky": "StickyAssignor",
    "groupkeeper.coordinator.core.assignors.types": (
        "Assignment MemberSubscription PartitionAssignor TopicPartition"
    ),
    "groupkeeper.coordinator.core.errors": "ErrorCode GroupError",
    "groupkeeper.coordinator.core.records": "SavedOffset",
    "groupkeeper.coordinator.core.group_state": "GroupState",
    "groupkeeper.coordinator.embed.assignor_plugins": (
        "AssignorPluginError get_assignor installed_assignors"
    ),
    "groupkeeper.coordinator.embed.commit_log": "OffsetCommitLog replay",
    "groupkeeper.coordinator.embed.consumer_messages": (
        "ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse"
    ),
    "groupkeeper.coordinator.embed.group_coordinator": "GroupCoordinator",
    "groupkeeper.coordinator.embed.group_metadata": "GroupMetadata MemberMetadata MemberState",
    "groupkeeper.coordinator.embed.messages": (
        "HeartbeatRequest HeartbeatResponse JoinGroupMember JoinGroupRequest JoinGroupResponse "
        "LeaveGroupRequest LeaveGroupResponse MemberAssignmentData OffsetCommitData "
        "OffsetCommitRequest OffsetCommitResponse OffsetFetchData OffsetFetchRequest "
        "OffsetFetchResponse ProtocolMetadata SyncGroupRequest SyncGroupResponse"
    ),
    "groupkeeper.coordinator.embed.offset_manager": "OffsetManager",
    "groupkeeper.coordinator.runtime.settings": "CoordinatorConfig",
    "groupkeeper.coordinator.testkit.faults": "Fault",
    "groupkeeper.coordinator.testkit.options": "ServerOptions",
    "groupkeeper.coordinator.testkit.refusals": "TestingError",
    "groupkeeper.coordinator.testkit.server": "GroupkeeperServer SyncGroupkeeperServer",
    "groupkeeper.protocol.consumer_protocol": (
        "ConsumerAssignment ConsumerProtocolError Subscription decode_assignment "
        "decode_subscription encode_assignment encode_subscription"
    ),
    "groupkeeper.storage.backends.host": "PersistentOffsetStorage",
    "groupkeeper.storage.backends.memory": "MemoryOffsetStorage",
    "groupkeeper.storage.backends.metadata_store": "GroupOffsets MetadataStore OffsetAndMetadata",
    "groupkeeper.storage.backends.sqlite.store": "SqliteOffsetStorage",
    "groupkeeper.storage.base": (
        "OffsetStorage StorageError StoreBusy StoreGivenUp StoreIdentity StoreRefused"
    ),
    "groupkeeper.storage.event_log.sealing.storage": "SealedStorage",
    "groupkeeper.storage.event_log.sealing.sealer": "SealSettings",
    "groupkeeper.storage.offset_store": "OffsetStore",
    "groupkeeper.storage.open": "open_storage read_events",
}
"""Module -> its public names."""

_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Import a public name at its first use."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_PLACES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return all names, imported or not."""
        return sorted({*globals(), *__all__})
