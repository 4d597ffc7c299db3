"""Which tests meet the mutants of a module: its own first, for most are caught by those.

The tree of ``tests/unit`` mirrors the source, so a module's tests are found by its folder and name.
Two small tables add what the mirror does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

OWN: Final[Mapping[str, Sequence[str]]] = {
    "coordinator/core/assignors/flow": ("coordinator/core/assignors/test_sticky",),
    "coordinator/core/assignors/shares": ("coordinator/core/assignors/test_sticky",),
    "coordinator/core/assignors/types": (
        "coordinator/core/assignors/test_sticky",
        "coordinator/core/assignors/test_range",
    ),
    "coordinator/core/cluster/shard": (
        "coordinator/core/cluster/test_shard",
        "coordinator/core/cluster/test_changes",
    ),
    "coordinator/core/cluster/changes": (
        "coordinator/core/cluster/test_changes",
        "coordinator/handlers/configs/test_configs",
    ),
    "coordinator/core/offsets/ends": (
        "coordinator/core/offsets/test_topics_changed",
        "coordinator/core/offsets/test_commit",
    ),
    "coordinator/core/groups/group": (
        "coordinator/core/classic/test_join",
        "coordinator/core/offsets/test_room",
    ),
    "coordinator/core/classic/group": (
        "coordinator/core/classic/test_join",
        "coordinator/core/classic/test_static_members",
        "coordinator/core/offsets/test_commit",
        "coordinator/core/offsets/test_deletion",
        "coordinator/core/offsets/test_retention",
        "coordinator/core/offsets/test_room",
    ),
    "coordinator/core/classic/member": (
        "coordinator/core/classic/test_join",
        "coordinator/core/test_bounds",
    ),
    "coordinator/core/classic/saved": ("coordinator/core/test_restart",),
    "coordinator/core/classic/behaviour": (
        "coordinator/core/test_restart",
        "coordinator/core/classic/test_rebalance_timers",
    ),
    "coordinator/core/classic/assignment_event": (
        "coordinator/core/classic/test_sync",
        "coordinator/core/test_bounds",
    ),
    "coordinator/core/cluster/group_configs": (
        "coordinator/core/cluster/test_changes",
        "coordinator/core/cluster/test_group_configs",
    ),
    "coordinator/core/classic/joining": (
        "coordinator/core/classic/test_join",
        "coordinator/core/classic/test_static_members",
        "coordinator/core/classic/test_group_size",
    ),
    "coordinator/core/groups/lost_offsets": (
        "coordinator/core/offsets/test_retention_steps",
        "coordinator/core/offsets/test_deletion",
    ),
    "coordinator/core/classic/membership": (
        "coordinator/core/classic/test_heartbeat",
        "coordinator/core/classic/test_sync",
        "coordinator/core/test_bounds",
    ),
    "coordinator/core/classic/rebalance": (
        "coordinator/core/classic/test_rebalance_timers",
        "coordinator/core/classic/test_join",
        "coordinator/core/classic/test_static_members",
    ),
    "coordinator/core/request_events": (
        "coordinator/core/classic/test_join",
        "coordinator/core/classic/test_static_members",
        "coordinator/core/classic/test_sync",
        "coordinator/core/test_bounds",
    ),
    "coordinator/core/shard": (
        "coordinator/core/test_restart",
        "coordinator/core/cluster/test_group_configs",
        "coordinator/core/offsets/test_topics_changed",
    ),
    "coordinator/core/state": (
        "coordinator/core/test_restart",
        "coordinator/core/offsets/test_commit",
        "coordinator/core/offsets/test_topics_changed",
    ),
    "coordinator/core/cluster/names": ("coordinator/core/cluster/test_shard",),
    "coordinator/core/offsets/sweep": ("coordinator/core/offsets/test_topics_changed",),
    "coordinator/core/classic/transitions": (
        "coordinator/core/classic/test_transitions",
        "coordinator/core/classic/test_join",
        "coordinator/core/classic/test_sync",
    ),
    "coordinator/handlers/api_versions": ("coordinator/handlers/test_cluster",),
    "coordinator/handlers/configs/resources": (
        "coordinator/handlers/configs/test_configs",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/create_partitions": (
        "coordinator/handlers/test_admin",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/create_topics": (
        "coordinator/handlers/test_admin",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/delete_groups": ("coordinator/handlers/test_deletion",),
    "coordinator/handlers/delete_topics": (
        "coordinator/handlers/test_admin",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/consumer_group_describe": ("coordinator/handlers/test_consumer_groups",),
    "coordinator/handlers/consumer_group_heartbeat": ("coordinator/handlers/test_consumer_groups",),
    "coordinator/handlers/describe_cluster": ("coordinator/handlers/test_cluster",),
    "coordinator/handlers/configs/describe_configs": (
        "coordinator/handlers/configs/test_configs",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/describe_groups": ("coordinator/handlers/test_admin",),
    "coordinator/handlers/fetch": (
        "coordinator/handlers/test_static_partitions",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/find_coordinator": (
        "coordinator/handlers/test_cluster",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/gather": ("coordinator/handlers/test_admin",),
    "coordinator/handlers/heartbeat": ("coordinator/handlers/test_membership",),
    "coordinator/handlers/configs/incremental_alter_configs": (
        "coordinator/handlers/configs/test_configs",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/join_group": ("coordinator/handlers/test_membership",),
    "coordinator/handlers/leave_group": ("coordinator/handlers/test_membership",),
    "coordinator/handlers/configs/list_config_resources": (
        "coordinator/handlers/configs/test_configs",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/list_groups": ("coordinator/handlers/test_admin",),
    "coordinator/handlers/list_offsets": (
        "coordinator/handlers/test_static_partitions",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/metadata": (
        "coordinator/handlers/test_cluster",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/offset_commit": ("coordinator/handlers/test_offsets",),
    "coordinator/handlers/offset_delete": ("coordinator/handlers/test_deletion",),
    "coordinator/handlers/offset_fetch": ("coordinator/handlers/test_offsets",),
    "coordinator/handlers/partitions": ("coordinator/handlers/test_static_partitions",),
    "coordinator/handlers/produce": (
        "coordinator/handlers/test_static_partitions",
        "coordinator/handlers/test_routes",
    ),
    "coordinator/handlers/sync_group": ("coordinator/handlers/test_membership",),
    "coordinator/handlers/topic_changes": ("coordinator/handlers/test_admin",),
    "coordinator/handlers/exchange": (
        "coordinator/handlers/test_membership",
        "coordinator/handlers/test_deletion",
    ),
    "coordinator/cluster/ends": ("coordinator/cluster/test_topics",),
    "coordinator/cluster/feed": (
        "coordinator/cluster/test_group_configs",
        "coordinator/cluster/test_topics",
    ),
    "coordinator/runtime/gathering": ("coordinator/runtime/test_group_commit",),
    "coordinator/runtime/lane": (
        "coordinator/runtime/test_group_commit",
        "coordinator/runtime/test_paused_lane",
        "coordinator/runtime/test_losing_the_store",
    ),
    "coordinator/runtime/owner": (
        "coordinator/runtime/test_loading",
        "coordinator/embed/test_group_coordinator",
    ),
    "coordinator/runtime/recovery": (
        "coordinator/runtime/test_loading",
        "coordinator/runtime/test_losing_the_store",
        "coordinator/runtime/test_store_taken_away",
    ),
    "coordinator/core/declarations": ("coordinator/core/test_requests",),
    "coordinator/runtime/shards": ("coordinator/runtime/test_loading",),
    "coordinator/runtime/slot": (
        "coordinator/runtime/test_group_commit",
        "coordinator/runtime/test_losing_the_store",
    ),
    "coordinator/runtime/tickets": ("coordinator/embed/test_group_coordinator",),
}
"""Module -> test files of ``tests/unit`` that the name does not show, nearest first."""

_SEALING: Final = (
    "tests/storage/test_write_order.py",
    "tests/storage/test_log_identity.py",
    "tests/storage/test_sealing.py",
    "tests/storage/test_event_source.py",
)
_LOG: Final = ("tests/storage/test_event_log.py", "tests/storage/test_cli_log.py")

ELSEWHERE: Final[Mapping[str, Sequence[str]]] = {
    "coordinator/handlers/consumer_group_heartbeat": ("tests/property/test_last_heartbeats.py",),
    "coordinator/core/consumer/heartbeat": ("tests/property/test_last_heartbeats.py",),
    "coordinator/core/consumer/behaviour": ("tests/property/test_last_heartbeats.py",),
    "coordinator/embed/life": (
        "tests/embedding/test_life.py",
        "tests/embedding/test_group_coordinator.py",
    ),
    "storage/event_log/sealing/abandoned": ("tests/storage/test_log_identity.py",),
    "storage/event_log/reader": _LOG,
    "coordinator/embed/router": (
        "tests/unit/coordinator/embed/test_group_coordinator.py",
        "tests/unit/coordinator/runtime/test_group_loading.py",
    ),
    "coordinator/embed/bare_coordinator": (
        "tests/unit/coordinator/embed/test_group_coordinator.py",
        "tests/embedding/test_topics_come_later.py",
    ),
    "storage/backends/sqlite/store": (
        "tests/storage/test_failed_sync.py",
        "tests/storage/test_stale_wal.py",
        "tests/storage/test_store_files.py",
    ),
    "storage/backends/sqlite/failed_sync": ("tests/storage/test_failed_sync.py",),
    "storage/backends/sqlite/checkpoints": (
        "tests/storage/test_failed_sync.py",
        "tests/unit/storage/backends/sqlite/test_checkpoints.py",
    ),
    "storage/backends/sqlite/tables": (
        "tests/storage/test_failed_sync.py",
        "tests/storage/test_sqlite_tables.py",
    ),
    "storage/backends/sqlite/store_files": (
        "tests/storage/test_store_files.py",
        "tests/storage/test_stale_wal.py",
    ),
    "storage/backends/sqlite/complete": ("tests/storage/test_stale_wal.py",),
    "storage/file_lock": (
        "tests/storage/test_store_files.py",
        "tests/storage/test_sqlite_processes.py",
    ),
    "storage/backends/sqlite/full_disk": ("tests/storage/test_full_disk.py",),
    "storage/job_thread": ("tests/unit/storage/test_job_thread.py",),
    "storage/event_log/chain": ("tests/storage/test_log_identity.py", *_LOG),
    "storage/event_log/check": ("tests/storage/test_log_identity.py", *_LOG),
    "storage/event_log/sealing/retention": ("tests/storage/test_log_retention.py", *_SEALING),
    "storage/event_log/manifest": (*_SEALING, "tests/storage/test_log_retention.py"),
    "storage/offset_store": ("tests/storage/test_offset_store.py",),
    "storage/backends/host": (
        "tests/property/test_persistent_worlds.py",
        "tests/embedding/test_group_coordinator.py",
    ),
    "storage/backends/metadata_store": (
        "tests/unit/storage/backends/test_host.py",
        "tests/unit/storage/backends/test_host_interruptions.py",
    ),
    "storage/backends/memory": (
        "tests/unit/storage/event_log/sealing/test_storage.py",
        "tests/storage/test_event_source.py",
    ),
    "storage/backends/sqlite/rows": (*_SEALING, *_LOG),
    "storage/event_log/sealing/storage": (*_SEALING, "tests/storage/test_full_disk.py"),
    "storage/event_log/sealing/sealer": _SEALING,
    "storage/event_log/sealing/process": ("tests/storage/test_sealing_process.py",),
    "storage/event_log/sealing/work": _SEALING,
    "storage/event_log/segment_digest": ("tests/storage/test_log_identity.py",),
    "storage/event_log/sealing/segment_writer": _SEALING,
    "storage/event_log/segments": (*_SEALING, *_LOG),
    "storage/event_log/sealing/settling": (*_SEALING, "tests/storage/test_log_retention.py"),
    "storage/event_log/sealing/snapshots": ("tests/storage/test_log_retention.py",),
    "storage/backends/sqlite/log": (*_SEALING, "tests/storage/test_event_log.py"),
}
"""Module -> test files outside ``tests/unit`` that its mutants meet, nearest first."""

LAYERS: Final[Mapping[str, Sequence[str]]] = {
    "coordinator/core/assignors": (
        "tests/unit/coordinator/core/assignors",
        "tests/property/test_assignors.py",
        "tests/unit/coordinator/embed/test_assignor_plugins.py",
    ),
    "coordinator/core": (
        "tests/unit/coordinator/core",
        "tests/scenarios",
        "tests/property/test_shard_machine.py",
        "tests/property/test_group_configs.py",
        "tests/unit/coordinator/embed/test_group_coordinator.py",
        "tests/unit/coordinator/handlers",
        "tests/unit/coordinator/runtime",
        "tests/unit/coordinator/cluster",
    ),
    "coordinator/runtime": (
        "tests/unit/coordinator/runtime",
        "tests/unit/coordinator/embed/test_group_coordinator.py",
        "tests/unit/coordinator/cluster",
        "tests/unit/coordinator/daemon/test_metrics.py",
        "tests/property/test_persistent_worlds.py",
        "tests/embedding/test_group_coordinator.py",
    ),
    "coordinator/cluster": (
        "tests/unit/coordinator/runtime",
        "tests/unit/coordinator/cluster",
        "tests/unit/coordinator/embed/test_group_coordinator.py",
        "tests/embedding/test_topics_come_later.py",
        "tests/embedding/test_group_coordinator.py",
    ),
    "coordinator/handlers": ("tests/unit/coordinator/handlers", "tests/wire"),
    "coordinator/server": (
        "tests/server/test_connection.py",
        "tests/server/test_bad_input.py",
        "tests/server/test_limits.py",
        "tests/server/test_budget.py",
        "tests/server/test_turns.py",
        "tests/server/test_loopback.py",
        "tests/unit/coordinator/server/test_watch.py",
    ),
    "coordinator/web": ("tests/server/test_web.py",),
    "storage": (
        "tests/unit/storage",
        "tests/storage/test_contract.py",
        "tests/storage/test_sqlite_append.py",
        "tests/storage/test_sqlite_tables.py",
        "tests/storage/test_sqlite_folding.py",
        "tests/property/test_storage_fold.py",
        # One set for all modules, because each set that caught one runs on the unchanged code.
        *sorted(
            {
                test
                for module, tests in ELSEWHERE.items()
                for test in tests
                if module.startswith("storage/")
            }
        ),
    ),
}
"""Folder -> everything that its mutants meet; the nearest folder above a module counts."""


def chosen_tests(root: Path, path: str) -> list[list[str]]:
    """The tests of one source file in two stages: its own, then all of its layer; none where
    nobody tests it.
    """
    of_layer = next(
        (tests for folder, tests in LAYERS.items() if path.startswith(folder + "/")), ()
    )
    module = path.removesuffix(".py")
    folder, _, stem = module.rpartition("/")
    named = [f"tests/unit/{name}.py" for name in OWN.get(module, (f"{folder}/test_{stem}",))]
    elsewhere = ELSEWHERE.get(module, ())
    own = [name for name in (*named, *elsewhere) if (root / name).is_file()]
    lacking = [name for name in elsewhere if not name.startswith(tuple(of_layer) or ("-",))]
    return [stage for stage in (own, [*of_layer, *lacking]) if stage]
