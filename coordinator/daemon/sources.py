"""The sources of /metrics: each one is a function that reads the numbers of one metric."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.apis import TABLE
from groupkeeper.coordinator.version import VERSION
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.storage.base import ROUND_TRIPS

if TYPE_CHECKING:
    from groupkeeper.coordinator.daemon.metrics import Series, Source
    from groupkeeper.coordinator.daemon.process import LoopLag
    from groupkeeper.coordinator.embed.bare_coordinator import BareCoordinator
    from groupkeeper.coordinator.runtime.stats import Stats
    from groupkeeper.coordinator.runtime.workshop import Workshop
    from groupkeeper.coordinator.server.stats import ServerStats
    from groupkeeper.coordinator.server.watch import CallbackWatch
    from groupkeeper.storage.base import OffsetStorage

_STORE_GAUGES = {
    "log_last_seq": "last_seq",
    "log_bytes": "database_bytes",
    "log_unsealed_rows": "unsealed_rows",
    "log_open_segment_age_seconds": "open_segment_age_s",
    "log_segments_sealed": "segments_sealed",
    "log_segments_damaged": "segments_damaged",
    "log_sealing_cpu_seconds": "sealing_cpu_s",
    "log_sealing_failures": "sealing_failures",
    "storage_wal_bytes": "wal_bytes",
    "storage_fold_failures": "fold_failures",
    "storage_journal_bytes": "journal_bytes",
    "storage_journal_beyond_bound": "journal_beyond_bound",
    "storage_lease_seconds_left": "lease_time_left_s",
    "storage_mirror_lag_seconds": "mirror_lag_s",
    "storage_set_backs": "set_backs",
}
"""Metric -> key of ``OffsetStorage.stats``. A backend without that number shows no series."""


def metric_sources(
    server: ServerStats,
    coordinator: BareCoordinator,
    storage: OffsetStorage,
    backend: str,
) -> dict[str, Source]:
    """Return the sources of the server, the groups, the coordinator and the store, by the name of
    their metric.
    """
    started = time.time()
    return {
        "build_info": lambda: {(VERSION, platform.python_version()): 1.0},
        "start_time_seconds": lambda: started,
        "ready": lambda: float(coordinator.is_ready),
        **_server_sources(server),
        **_group_sources(coordinator),
        **_work_sources(coordinator.workshop),
        **_runtime_sources(coordinator.stats),
        **_storage_sources(coordinator, storage, backend),
    }


def loop_sources(lag: LoopLag, watch: CallbackWatch) -> dict[str, Source]:
    """Return the sources of the event loop, by the name of their metric."""
    return {
        "event_loop_lag_seconds": lambda: lag.seconds,
        "event_loop_callback_cpu_seconds": lambda: watch.cpu_seconds,
        "slow_callbacks": lambda: watch.slow,
    }


def _server_sources(stats: ServerStats) -> dict[str, Source]:
    return {
        "connections": lambda: stats.connections_open,
        "connections_accepted": lambda: stats.connections_accepted,
        "connections_closed": lambda: _by_label(stats.closed),
        "buffered_bytes": lambda: stats.buffered_bytes,
        "reading_paused": lambda: stats.reading_paused,
        "received_bytes": lambda: stats.bytes_in,
        "sent_bytes": lambda: stats.bytes_out,
        "requests": lambda: _requests(stats),
        "request_duration_seconds": lambda: {
            (_api_name(key),): histogram for key, histogram in stats.request_times().items()
        },
    }


def _group_sources(coordinator: BareCoordinator) -> dict[str, Source]:
    return {
        "groups": lambda: {
            (group_type.value, state.value): float(count)
            for (group_type, state), count in coordinator.groups_by_type().items()
        },
        "groups_refused": lambda: coordinator.groups_refused,
        "members": coordinator.member_count,
        "offsets": coordinator.offset_count,
        "offset_rewinds": lambda: (
            0 if coordinator.topics is None else coordinator.topics.ends.rewinds
        ),
    }


def _work_sources(workshop: Workshop) -> dict[str, Source]:
    assignments, patterns = workshop.assignments, workshop.patterns
    return {
        "consumer_assignments": lambda: {
            outcome: float(count) for outcome, count in assignments.outcomes.items()
        },
        "consumer_assignment_seconds": lambda: {
            (assignor,): seconds for assignor, seconds in assignments.seconds.items()
        },
        "consumer_work_waiting": lambda: {
            ("assignment",): float(assignments.waiting),
            ("patterns",): float(patterns.waiting),
        },
        "consumer_patterns": lambda: patterns.patterns,
    }


def _runtime_sources(stats: Stats) -> dict[str, Source]:
    return {
        "requests_refused": lambda: {
            ("loading",): stats.refused_loading,
            ("overload",): stats.refused_overload,
        },
        "rebalances": lambda: _by_label(stats.rebalances),
        "group_rebalance_duration_seconds": lambda: stats.rebalance_seconds,
        "members_evicted": lambda: _by_label(stats.members_evicted),
        "group_conversions": lambda: _by_label(stats.conversions),
        "consumer_targets": lambda: _by_label(stats.targets),
        "consumer_targets_failed": lambda: _by_label(stats.targets_failed),
        "consumer_patterns_refused": lambda: stats.patterns_refused,
        "offset_commits": lambda: {
            ("accepted",): stats.commits_accepted,
            ("rejected",): stats.commits_rejected,
        },
        "offsets_expired": lambda: stats.offsets_expired,
        "storage_flush_duration_seconds": lambda: stats.append_seconds,
        "storage_flush_batch_size": lambda: stats.append_requests,
        "storage_failures": lambda: stats.appends_failed,
        "storage_loads": lambda: stats.loads,
        "storage_load_failures": lambda: stats.loads_failed,
        "storage_lease_lapses": lambda: stats.lapses,
        "storage_load_duration_seconds": lambda: stats.load_ms_last / 1000,
        "internal_errors": lambda: stats.bugs + stats.tickets_failed,
        "events_dropped": lambda: stats.events_dropped,
    }


def _storage_sources(
    coordinator: BareCoordinator, storage: OffsetStorage, backend: str
) -> dict[str, Source]:
    def number(key: str) -> Source:
        def read() -> Series:
            value = storage.stats().get(key)
            return {} if value is None else {(): value}

        return read

    return {
        "storage_up": lambda: {(backend,): float(coordinator.is_ready)},
        "storage_unfolded_requests": storage.unfolded,
        "storage_round_trips": lambda: _round_trips(storage.stats()),
        **{metric: number(key) for metric, key in _STORE_GAUGES.items()},
    }


def _round_trips(stats: dict[str, float]) -> Series:
    """Return the number of times that each call was sent to the server of the store, by call. Empty
    if the store does not count its calls.
    """
    return {
        (key.removeprefix(ROUND_TRIPS),): count
        for key, count in stats.items()
        if key.startswith(ROUND_TRIPS)
    }


def _by_label(counts: dict[str, int]) -> Series:
    return {(label,): float(count) for label, count in counts.items()}


def _requests(stats: ServerStats) -> Series:
    return {
        (_api_name(key), str(version), _error_name(error)): float(count)
        for (key, version, error), count in stats.requests.items()
    }


def _api_name(key: int) -> str:
    api = TABLE.get(key)
    return ApiKey(key).name if api is None else api.name


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
