"""Every Prometheus metric of ours, named and explained in one place.

Whoever counts keeps plain integers (``Histogram``, or its own); ``exposition`` reads them when a
scrape comes, through the sources that the composition root hands over.

Long because it is a list: every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from groupkeeper.coordinator.runtime.histogram import Histogram

NAMESPACE = "groupkeeper"

Series: TypeAlias = Mapping[tuple[str, ...], float | Histogram]
"""label values, in the order of the definition -> value."""
Value: TypeAlias = float | Histogram | Series
Source: TypeAlias = Callable[[], Value]
"""Called at each scrape, on the loop; must not block."""


def series_of(value: Value) -> int:
    """Return how many series a value is."""
    if isinstance(value, Histogram):
        return len(value.counts) + 2
    if isinstance(value, Mapping):
        return sum(len(v.counts) + 2 if isinstance(v, Histogram) else 1 for v in value.values())
    return 1


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric: ``groupkeeper_<name>``; counters get their ``_total`` when they are written out."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    advice: str
    """What an operator does with it; for ``docs/reference/metrics.md``."""

    @property
    def full_name(self) -> str:
        """The name as Prometheus shows it."""
        return f"{NAMESPACE}_{self.name}" + ("_total" if self.kind == "counter" else "")


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "build_info",
        "gauge",
        ("version", "python"),
        "Always 1; the labels tell the version.",
        "See in a graph when a version was rolled out.",
    ),
    Definition(
        "start_time_seconds",
        "gauge",
        (),
        "When this process started, in seconds since the epoch.",
        "A change is a restart.",
    ),
    Definition(
        "ready",
        "gauge",
        (),
        "1 when groups are served, else 0.",
        "Alert when it is 0 for a minute; /readyz says why.",
    ),
    Definition(
        "connections",
        "gauge",
        (),
        "Open connections on the Kafka port.",
        "Compare with kafka.max_connections.",
    ),
    Definition(
        "connections_accepted",
        "counter",
        (),
        "Connections accepted since the start.",
        "A high rate is a client that reconnects in a loop; the log names refused ones.",
    ),
    Definition(
        "connections_closed",
        "counter",
        ("reason",),
        "Connections that we closed, by reason.",
        "idle is normal. Others name what the peer sent or which limit it met; the log has its "
        "address.",
    ),
    Definition(
        "buffered_bytes",
        "gauge",
        (),
        "Bytes held for all connections of the Kafka port: what waits for the rest of a frame, for "
        "an answer, or for the peer to take it.",
        "Compare with kafka.max_buffered_bytes. High for long: peers that send much and take "
        "little; connections_closed with memory_budget says whether any had to go.",
    ),
    Definition(
        "reading_paused",
        "counter",
        (),
        "Times that a connection was read no further because all together held too much.",
        "Grows with peers that hold more than their share of kafka.max_buffered_bytes.",
    ),
    Definition(
        "received_bytes",
        "counter",
        (),
        "Bytes read from the Kafka port.",
        "For capacity.",
    ),
    Definition(
        "sent_bytes",
        "counter",
        (),
        "Bytes written to the Kafka port.",
        "For capacity.",
    ),
    Definition(
        "http_connections",
        "gauge",
        (),
        "Open connections on the HTTP port.",
        "Compare with http.max_connections.",
    ),
    Definition(
        "http_refused",
        "counter",
        ("reason",),
        "Connections of the HTTP port that we closed, and scrapes answered 503, by reason.",
        "too_many_connections: somebody keeps silent connections open. request_timeout: a peer "
        "that sends nothing, or a head byte by byte. The log has its address.",
    ),
    Definition(
        "descriptor_shortages",
        "counter",
        (),
        "Seconds in which the process had no file descriptor left.",
        "Must be 0: newcomers are closed meanwhile and the store may fail. Raise the limit of open "
        "files.",
    ),
    Definition(
        "requests",
        "counter",
        ("api", "version", "error"),
        "Requests answered, by API, version and the first error of the answer.",
        "COORDINATOR_LOAD_IN_PROGRESS and NOT_COORDINATOR mean the store was away. "
        "UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION mean clients were evicted or are too slow; with "
        "FENCED_INSTANCE_ID they are the fenced requests.",
    ),
    Definition(
        "request_duration_seconds",
        "histogram",
        ("api",),
        "Time from the beginning of a request to its reply, by API.",
        "JoinGroup and SyncGroup wait for other members, Fetch for the time that the client asks "
        "for, commits for the disk; Heartbeat and OffsetFetch above 0.1 are a busy loop.",
    ),
    Definition(
        "requests_refused",
        "counter",
        ("reason",),
        "Requests answered without looking at them: loading, or overload of the store.",
        "Clients repeat them by themselves. overload means that the store is slower than the load.",
    ),
    Definition(
        "groups",
        "gauge",
        ("type", "state"),
        "Groups, by type and state.",
        "Groups that stay in PreparingRebalance wait for a member that does not come back.",
    ),
    Definition(
        "groups_refused",
        "counter",
        (),
        "Joins and commits that would have created one group more than group.max_groups.",
        "Alert when it grows: delete groups that nobody needs, or raise the limit. Something may "
        "be naming groups at random.",
    ),
    Definition(
        "members",
        "gauge",
        (),
        "Members of all groups.",
        "A drop is a fleet that lost its way here.",
    ),
    Definition(
        "offsets",
        "gauge",
        (),
        "Committed offsets held.",
        "Memory grows with it, about 300 bytes each.",
    ),
    Definition(
        "rebalances",
        "counter",
        ("reason",),
        "Join phases that began, by the reason.",
        "member_evicted and rejoin storms point at session timeouts that are too short.",
    ),
    Definition(
        "group_rebalance_duration_seconds",
        "histogram",
        (),
        "Time of a join phase, from its beginning to the new generation; of all groups.",
        "Nobody of the group reads meanwhile. Long ones wait for a member that does not come back: "
        "rebalance_end in the event log names it in awaited.",
    ),
    Definition(
        "members_evicted",
        "counter",
        ("reason",),
        "Members removed by the coordinator, by the reason.",
        "session_timeout: the process died or stalls. The event log names each one.",
    ),
    Definition(
        "offset_commits",
        "counter",
        ("result",),
        "OffsetCommit requests: accepted or rejected.",
        "Rejected ones lose work: see requests_total for the error, the event log for the group.",
    ),
    Definition(
        "offset_rewinds",
        "counter",
        (),
        "Committed offsets that were lower than the ones they replaced, counted by partition.",
        "A reset, or a client that commits what is old; commit in the event log has both offsets.",
    ),
    Definition(
        "offsets_expired",
        "counter",
        (),
        "Committed offsets dropped by retention.",
        "Raise offsets.retention_minutes if it hits groups that come back.",
    ),
    Definition(
        "storage_up",
        "gauge",
        ("backend",),
        "1 while appends succeed, 0 while shards wait to be loaded.",
        "Alert at 0: nothing is acknowledged until it is 1 again, and nobody is evicted meanwhile.",
    ),
    Definition(
        "storage_flush_duration_seconds",
        "histogram",
        (),
        "Time of one append, until it is durable.",
        "Commits wait for this. Above 100 ms look at the disk.",
    ),
    Definition(
        "storage_flush_batch_size",
        "histogram",
        (),
        "Requests written by one append.",
        "Large batches mean that the disk is slower than the load; that is what they are for.",
    ),
    Definition(
        "storage_failures",
        "counter",
        (),
        "Appends that failed, timed out or were fenced.",
        "Each one made its shards load anew; the log says why.",
    ),
    Definition(
        "storage_loads",
        "counter",
        (),
        "Loads of all shards of a lane, the first one included.",
        "More than one a process means that an append failed.",
    ),
    Definition(
        "storage_load_failures",
        "counter",
        (),
        "Loads that failed and were tried again.",
        "Grows while the store cannot be read; the log says why.",
    ),
    Definition(
        "storage_load_duration_seconds",
        "gauge",
        (),
        "Time of the last load.",
        "What a restart costs; grows with groups, offsets and unfolded requests.",
    ),
    Definition(
        "storage_unfolded_requests",
        "gauge",
        (),
        "Requests written that no folded row holds yet.",
        "Bounds the time of the next start; stays below about 50,000.",
    ),
    Definition(
        "storage_fold_failures",
        "counter",
        (),
        "Folds that could not be written; what they had is tried again.",
        "No commit is lost or late, but unfolded requests grow; the log says why (fold_failed).",
    ),
    Definition(
        "log_last_seq",
        "gauge",
        (),
        "Sequence number of the last durable event.",
        "Its rate is events a second.",
    ),
    Definition(
        "log_bytes",
        "gauge",
        (),
        "Bytes of the store's main file, event log included.",
        "Stays level once old rows are deleted: what they leave is used again. Grows while "
        "log_unsealed_rows does.",
    ),
    Definition(
        "log_unsealed_rows",
        "gauge",
        (),
        "Appends whose events are in no segment yet.",
        "Rises and falls with each segment. When it only rises sealing has stopped: see "
        "log_sealing_failures.",
    ),
    Definition(
        "log_open_segment_age_seconds",
        "gauge",
        (),
        "Age of the first event of the segment that is being written; 0 where none is.",
        "Worry above log.segment_ms and a few seconds: reports made from the files are late.",
    ),
    Definition(
        "log_segments_sealed",
        "counter",
        (),
        "Segments sealed since the start.",
        "Many small ones a minute: raise log.segment_bytes.",
    ),
    Definition(
        "log_segments_damaged",
        "counter",
        (),
        "Segments that could not be read when their day went by retention, since the start.",
        "Alert when it grows: what they told is in no snapshot, and lost. The log line "
        "segment_lost_by_retention names them, and so does groupkeeper log verify, for ever.",
    ),
    Definition(
        "log_sealing_cpu_seconds",
        "counter",
        (),
        "Processor time of the process that seals, which is not part of the daemon's own.",
        "About a tenth of the daemon's own under a load of commits, nothing without.",
    ),
    Definition(
        "log_sealing_failures",
        "counter",
        (),
        "Times that sealing failed; it is tried again every 5 s and nothing is lost.",
        "Alert when it grows: the log line says why, most often that the disk of log.dir is full. "
        "Events stay in the store meanwhile.",
    ),
    Definition(
        "storage_wal_bytes",
        "gauge",
        (),
        "Bytes of SQLite's write-ahead log.",
        "Above 100 MB some reader keeps a transaction open.",
    ),
    Definition(
        "event_loop_lag_seconds",
        "histogram",
        (),
        "How late the event loop comes back to a timer of 250 ms.",
        "When the buckets above 0.1 grow the process is starved or one request is too large.",
    ),
    Definition(
        "event_loop_callback_cpu_seconds",
        "histogram",
        (),
        "CPU time of the callbacks of the event loop that took longer than 1 ms.",
        "Where its large buckets stand still and those of the lag grow, the machine is busy with "
        "something else.",
    ),
    Definition(
        "slow_callbacks",
        "counter",
        (),
        "Callbacks of the event loop that used over 100 ms of CPU time.",
        "Nobody is answered meanwhile. The log names each one; please report it.",
    ),
    Definition(
        "internal_errors",
        "counter",
        (),
        "Requests answered UNKNOWN_SERVER_ERROR: bugs of ours.",
        "Must be 0. The log has the input; please report it.",
    ),
    Definition(
        "events_dropped",
        "counter",
        (),
        "Events that were let go: too many waited for an append.",
        "Records are never dropped. Happens when clients are refused faster than the disk writes.",
    ),
    Definition(
        "metrics_dropped_series",
        "counter",
        (),
        "Series left out of scrapes by metrics.max_series.",
        "Raise metrics.max_series, or find out what makes so many.",
    ),
)
