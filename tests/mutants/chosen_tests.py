"""Which tests meet the mutants of a module: its own first, for most are caught by those.

The tree of ``tests/unit`` mirrors the source, so a module's tests are found by its folder and name.
Two small tables add what the mirror does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

OWN: Final[Mapping[str, Sequence[str]]] = {
    "core/assignment_event": ("core/test_sync", "core/test_bounds"),
    "core/assignors/flow": ("core/assignors/test_sticky",),
    "core/assignors/shares": ("core/assignors/test_sticky",),
    "core/assignors/types": ("core/assignors/test_sticky", "core/assignors/test_range"),
    "core/cluster": ("core/test_cluster_shard", "core/test_config_changes"),
    "core/config_changes": ("core/test_config_changes", "handlers/test_configs"),
    "core/ends": ("core/test_topics_changed", "core/test_offset_commit"),
    "core/group": ("core/test_join", "core/test_static_members", "core/test_restart"),
    "core/group_configs": ("core/test_config_changes", "core/test_group_settings"),
    "core/joining": ("core/test_join", "core/test_static_members", "core/test_group_size"),
    "core/lost_offsets": ("core/test_retention_steps", "core/test_deletion"),
    "core/membership": ("core/test_heartbeat", "core/test_sync", "core/test_bounds"),
    "core/rebalance": ("core/test_rebalance_timers", "core/test_join", "core/test_static_members"),
    "core/request_events": ("core/test_join", "core/test_static_members"),
    "core/shard": ("core/test_restart", "core/test_group_settings", "core/test_topics_changed"),
    "core/state": ("core/test_restart", "core/test_offset_commit", "core/test_topics_changed"),
    "core/topic_names": ("core/test_cluster_shard",),
    "core/topic_sweep": ("core/test_topics_changed",),
    "core/transitions": ("core/test_transitions", "core/test_join", "core/test_sync"),
    "handlers/api_versions": ("handlers/test_cluster",),
    "handlers/config_resources": ("handlers/test_configs",),
    "handlers/create_partitions": ("handlers/test_admin",),
    "handlers/create_topics": ("handlers/test_admin",),
    "handlers/delete_groups": ("handlers/test_deletion",),
    "handlers/delete_topics": ("handlers/test_admin",),
    "handlers/describe_cluster": ("handlers/test_cluster",),
    "handlers/describe_configs": ("handlers/test_configs",),
    "handlers/describe_groups": ("handlers/test_admin",),
    "handlers/fetch": ("handlers/test_static_partitions",),
    "handlers/find_coordinator": ("handlers/test_cluster",),
    "handlers/gather": ("handlers/test_admin",),
    "handlers/heartbeat": ("handlers/test_membership",),
    "handlers/incremental_alter_configs": ("handlers/test_configs",),
    "handlers/join_group": ("handlers/test_membership",),
    "handlers/leave_group": ("handlers/test_membership",),
    "handlers/list_config_resources": ("handlers/test_configs",),
    "handlers/list_groups": ("handlers/test_admin",),
    "handlers/list_offsets": ("handlers/test_static_partitions",),
    "handlers/metadata": ("handlers/test_cluster",),
    "handlers/offset_commit": ("handlers/test_offsets",),
    "handlers/offset_delete": ("handlers/test_deletion",),
    "handlers/offset_fetch": ("handlers/test_offsets",),
    "handlers/partitions": ("handlers/test_static_partitions",),
    "handlers/produce": ("handlers/test_static_partitions",),
    "handlers/sync_group": ("handlers/test_membership",),
    "handlers/topic_changes": ("handlers/test_admin",),
    "handlers/writing": ("handlers/test_membership", "handlers/test_deletion"),
    "runtime/cluster_feed": ("runtime/test_group_configs", "test_topics"),
    "runtime/lane": (
        "runtime/test_pipeline",
        "runtime/test_held_lane",
        "runtime/test_losing_the_store",
    ),
    "runtime/owner": ("runtime/test_loading", "runtime/test_housekeeping", "test_service"),
    "runtime/refusals": ("runtime/test_loading", "runtime/test_losing_the_store"),
    "runtime/shards": ("runtime/test_loading",),
    "runtime/slot": ("runtime/test_pipeline", "runtime/test_losing_the_store"),
    "runtime/tickets": ("test_service",),
}
"""Module -> test files of ``tests/unit`` that the name does not show, nearest first."""

_SEALING: Final = (
    "tests/storage/test_write_order.py",
    "tests/storage/test_log_identity.py",
    "tests/storage/test_sealing.py",
)
_LOG: Final = ("tests/storage/test_event_log.py", "tests/storage/test_cli_log.py")

ELSEWHERE: Final[Mapping[str, Sequence[str]]] = {
    "coordinator/life": (
        "tests/embedding/test_life.py",
        "tests/embedding/test_group_coordinator.py",
    ),
    "coordinator/service": ("tests/embedding/test_topics_come_later.py",),
    "storage/abandoned_logs": ("tests/storage/test_log_identity.py",),
    "storage/event_log": _LOG,
    "storage/file_lock": (
        "tests/storage/test_store_files.py",
        "tests/storage/test_sqlite_processes.py",
    ),
    "storage/full_disk": ("tests/storage/test_full_disk.py",),
    "storage/job_thread": ("tests/storage/test_job_thread.py",),
    "storage/log_chain": ("tests/storage/test_log_identity.py", *_LOG),
    "storage/log_check": ("tests/storage/test_log_identity.py", *_LOG),
    "storage/log_retention": ("tests/storage/test_log_retention.py", *_SEALING),
    "storage/manifest": (*_SEALING, "tests/storage/test_log_retention.py"),
    "storage/offset_store": ("tests/storage/test_offset_store.py",),
    "storage/persistent": (
        "tests/property/test_persistent_worlds.py",
        "tests/embedding/test_group_coordinator.py",
    ),
    "storage/sealed_memory": ("tests/storage/test_sealed_memory.py",),
    "storage/sealed_sqlite": (*_SEALING, "tests/storage/test_full_disk.py"),
    "storage/sealing": _SEALING,
    "storage/sealing_process": ("tests/storage/test_sealing_process.py",),
    "storage/sealing_work": _SEALING,
    "storage/segment_digest": ("tests/storage/test_log_identity.py",),
    "storage/segment_writer": _SEALING,
    "storage/segments": (*_SEALING, *_LOG),
    "storage/settling": (*_SEALING, "tests/storage/test_log_retention.py"),
    "storage/snapshots": ("tests/storage/test_log_retention.py",),
    "storage/sqlite": ("tests/storage/test_store_files.py",),
    "storage/sqlite_log": (*_SEALING, "tests/storage/test_event_log.py"),
    "storage/store_files": ("tests/storage/test_store_files.py",),
}
"""Module -> test files outside ``tests/unit`` that its mutants meet, nearest first."""

LAYERS: Final[Mapping[str, Sequence[str]]] = {
    "coordinator/core/assignors": (
        "tests/unit/core/assignors",
        "tests/property/test_assignors.py",
        "tests/unit/test_assignor_plugins.py",
    ),
    "coordinator/core": (
        "tests/unit/core",
        "tests/scenarios",
        "tests/property/test_shard_machine.py",
        "tests/property/test_group_configs.py",
        "tests/unit/test_service.py",
        "tests/unit/handlers",
        "tests/unit/runtime",
    ),
    "coordinator/runtime": (
        "tests/unit/runtime",
        "tests/unit/test_service.py",
        "tests/unit/test_topics.py",
        "tests/unit/test_metrics.py",
        "tests/property/test_persistent_worlds.py",
        "tests/embedding/test_group_coordinator.py",
    ),
    "coordinator/handlers": ("tests/unit/handlers", "tests/wire"),
    "coordinator/server": (
        "tests/server/test_connection.py",
        "tests/server/test_bad_input.py",
        "tests/server/test_limits.py",
        "tests/server/test_budget.py",
        "tests/server/test_loopback.py",
    ),
    "coordinator/web": ("tests/server/test_web.py",),
    "storage": (
        "tests/unit/storage",
        "tests/storage/test_contract.py",
        "tests/storage/test_sqlite_append.py",
        "tests/storage/test_sqlite_schema.py",
        "tests/storage/test_sqlite_folding.py",
        "tests/property/test_storage_fold.py",
        # One set for all modules: each set is first seen to pass on the code as it is.
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
    module = path.removeprefix("coordinator/").removesuffix(".py")
    folder, _, stem = module.rpartition("/")
    named = [f"tests/unit/{name}.py" for name in OWN.get(module, (f"{folder}/test_{stem}",))]
    elsewhere = ELSEWHERE.get(path.removesuffix(".py"), ())
    own = [name for name in (*named, *elsewhere) if (root / name).is_file()]
    # Only the last stage is seen to pass on the code as it is, so it holds all of them.
    lacking = [name for name in elsewhere if not name.startswith(tuple(of_layer) or ("-",))]
    return [stage for stage in (own, [*of_layer, *lacking]) if stage]
