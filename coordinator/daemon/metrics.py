"""The definitions of all Prometheus metrics.

The daemon counts in plain integers and ``Histogram``. ``exposition`` reads them at each scrape,
through the sources that the composition root passes.

This file is long because it is one table: every metric with its help and its advice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from groupkeeper.coordinator.runtime.stats import Histogram

NAMESPACE = "groupkeeper"

Series: TypeAlias = Mapping[tuple[str, ...], float | Histogram]
"""Label values, in the order of the definition's labels -> value."""
Value: TypeAlias = float | Histogram | Series
Source: TypeAlias = Callable[[], Value]
"""Called at each scrape, on the loop; must not block."""


def series_of(value: Value) -> int:
    """Return the number of series of a value."""
    if isinstance(value, Histogram):
        return len(value.counts) + 2
    if isinstance(value, Mapping):
        return sum(len(v.counts) + 2 if isinstance(v, Histogram) else 1 for v in value.values())
    return 1


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric: ``groupkeeper_<name>``. Counters get their ``_total`` when they are written."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    advice: str
    """Advice for the operator, printed in ``docs/reference/metrics.md``."""
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as Prometheus shows it."""
        return f"{NAMESPACE}_{self.name}" + ("_total" if self.kind == "counter" else "")


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "build_info",
        "gauge",
        "Always 1; the labels are the version.",
        "Shows in a graph when a version was rolled out.",
        labels=("version", "python"),
    ),
    Definition(
        "start_time_seconds",
        "gauge",
        "When this process started, in seconds since the epoch.",
        "A change is a restart.",
    ),
    Definition(
        "ready",
        "gauge",
        "1 if groups are served, else 0.",
        "Alert when it is 0 for a minute; /readyz says why.",
    ),
    Definition(
        "connections",
        "gauge",
        "Open connections on the Kafka port.",
        "Compare with kafka.max_connections.",
    ),
    Definition(
        "connections_accepted",
        "counter",
        "Connections accepted since the start.",
        "A high rate means that a client reconnects in a loop; the log names refused ones.",
    ),
    Definition(
        "connections_closed",
        "counter",
        "Connections of the Kafka port that the server closed, by reason.",
        "idle is normal. Other reasons name a protocol error or a limit; the log has the peer's "
        "address.",
        labels=("reason",),
    ),
    Definition(
        "buffered_bytes",
        "gauge",
        "Bytes held for all connections of the Kafka port: incomplete frames, requests that wait "
        "for an answer, and replies that the peer has not read.",
        "Compare with kafka.max_buffered_bytes. High for long: peers send much and read little; "
        "connections_closed with memory_budget shows whether any were closed.",
    ),
    Definition(
        "reading_paused",
        "counter",
        "Times that reading from a connection paused because all connections together held too "
        "many bytes.",
        "Grows if peers hold more than their share of kafka.max_buffered_bytes.",
    ),
    Definition(
        "received_bytes",
        "counter",
        "Bytes read from the Kafka port.",
        "For capacity.",
    ),
    Definition(
        "sent_bytes",
        "counter",
        "Bytes written to the Kafka port.",
        "For capacity.",
    ),
    Definition(
        "http_connections",
        "gauge",
        "Open connections on the HTTP port.",
        "Compare with http.max_connections.",
    ),
    Definition(
        "http_refused",
        "counter",
        "Connections of the HTTP port that the server closed, and scrapes answered 503, by reason.",
        "too_many_connections: a peer keeps silent connections open. request_timeout: a peer "
        "sends nothing, or a head byte by byte. The log has its address.",
        labels=("reason",),
    ),
    Definition(
        "descriptor_shortages",
        "counter",
        "Seconds in which the process had no file descriptor left.",
        "Must be 0: otherwise new connections are closed and the store may fail. Raise the limit "
        "of open files.",
    ),
    Definition(
        "requests",
        "counter",
        "Requests answered, by API, version and the first error of the answer.",
        "COORDINATOR_LOAD_IN_PROGRESS and NOT_COORDINATOR mean that the store was unavailable. "
        "UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION mean that clients were evicted or too slow. "
        "Together with FENCED_INSTANCE_ID these two are the fenced requests.",
        labels=("api", "version", "error"),
    ),
    Definition(
        "request_duration_seconds",
        "histogram",
        "Time from the start of a request to its reply, by API.",
        "JoinGroup and SyncGroup wait for other members, Fetch for as long as the client asks, "
        "commits for the disk. Heartbeat and OffsetFetch above 0.1 mean a busy loop.",
        labels=("api",),
    ),
    Definition(
        "requests_refused",
        "counter",
        "Requests refused before they were processed: loading, or overload of the store.",
        "Clients retry them by themselves. overload means that the store is slower than the load.",
        labels=("reason",),
    ),
    Definition(
        "groups",
        "gauge",
        "Groups, by type and state.",
        "A classic group that stays in PreparingRebalance waits for a member that does not come "
        "back, a consumer group in Reconciling for one that does not give up its partitions.",
        labels=("type", "state"),
    ),
    Definition(
        "groups_refused",
        "counter",
        "Joins and commits that would have created one group more than group.max_groups.",
        "Alert when it grows: delete unused groups, or raise the limit. A client may "
        "use random group ids.",
    ),
    Definition(
        "members",
        "gauge",
        "Members of all groups.",
        "A drop means that many clients lost their connection.",
    ),
    Definition(
        "offsets",
        "gauge",
        "Committed offsets held.",
        "Memory grows with it, by about 300 bytes each.",
    ),
    Definition(
        "rebalances",
        "counter",
        "Join phases begun, and new epochs of consumer groups, by reason.",
        "Many with session_timeout or join_timeout: clients are stopped or slow, or their "
        "timeouts are too short. Many with member_join and member_leave: clients restart often.",
        labels=("reason",),
    ),
    Definition(
        "group_rebalance_duration_seconds",
        "histogram",
        "Time of a join phase, from its start to the new generation, over all groups. In a "
        "consumer group: until all members have followed.",
        "A classic group consumes nothing in this time. A long one waits for an absent member: "
        "rebalance_end in the event log names it in awaited.",
    ),
    Definition(
        "members_evicted",
        "counter",
        "Members removed by the coordinator, by reason.",
        "session_timeout: the client died or stalled. The event log names each one.",
        labels=("reason",),
    ),
    Definition(
        "offset_commits",
        "counter",
        "OffsetCommit requests: accepted or rejected.",
        "After a rejected commit the client repeats its work. requests_total has the errors, the "
        "event log has the groups.",
        labels=("result",),
    ),
    Definition(
        "group_conversions",
        "counter",
        "Groups that changed their type, by the new type.",
        "Grows while clients move to the other protocol. If a group goes back and forth, its "
        "clients do not agree on the protocol; group_converted in the event log has the groups.",
        labels=("to",),
    ),
    Definition(
        "consumer_targets",
        "counter",
        "Target assignments that consumer groups got, by assignor, wherever they were computed.",
        "Fewer than rebalances of consumer groups is normal: one target serves several epochs.",
        labels=("assignor",),
    ),
    Definition(
        "consumer_targets_failed",
        "counter",
        "Target assignments of consumer groups that could not be computed or stored, by reason.",
        "Alert above 0: the members keep their old partitions. assignment_failed in the event log "
        "has the groups and the reasons.",
        labels=("reason",),
    ),
    Definition(
        "consumer_assignments",
        "counter",
        "Assignments of consumer groups that were meant for the other process, by outcome: "
        "computed, raised, invalid, died, timed_out, refused.",
        "Alert on every outcome except computed: assignment_failed in the log says why.",
        labels=("assignor", "outcome"),
    ),
    Definition(
        "consumer_assignment_seconds",
        "counter",
        "Seconds that the other process needed for computed assignments, including its start.",
        "If it grows faster than the clock, groups wait for each other's assignments.",
        labels=("assignor",),
    ),
    Definition(
        "consumer_work_waiting",
        "gauge",
        "Consumer groups that wait for an assignment of the other process, or for the topics of "
        "their patterns.",
        "If it stays high, see consumer_assignment_seconds.",
        labels=("work",),
    ),
    Definition(
        "consumer_patterns",
        "gauge",
        "Different patterns of topics that the coordinator holds: those of members, and for up to "
        "20 minutes those that members had before.",
        "Compare with group.max_patterns.",
    ),
    Definition(
        "consumer_patterns_refused",
        "counter",
        "Patterns of consumer groups that could not be used, counted at each try.",
        "pattern_refused in the event log has the groups, the patterns and the reasons.",
    ),
    Definition(
        "offset_rewinds",
        "counter",
        "Committed offsets that were lower than the ones they replaced, counted by partition.",
        "A reset, or a client commits an old offset; commit in the event log has both offsets.",
    ),
    Definition(
        "offsets_expired",
        "counter",
        "Committed offsets expired by retention.",
        "Raise offsets.retention_minutes if groups that come back lose offsets.",
    ),
    Definition(
        "storage_up",
        "gauge",
        "1 while every shard is loaded, 0 while shards wait to be loaded.",
        "Alert at 0: until it is 1 again nothing is acknowledged, and no member is evicted.",
        labels=("backend",),
    ),
    Definition(
        "storage_flush_duration_seconds",
        "histogram",
        "Time of one append, until it is durable.",
        "Commits wait for this. Above 100 ms check the disk.",
    ),
    Definition(
        "storage_flush_batch_size",
        "histogram",
        "Requests written by one append.",
        "The more requests come during one append, the larger the next one. Large batches are "
        "normal under load; they keep a slow disk fast enough.",
    ),
    Definition(
        "storage_failures",
        "counter",
        "Appends that failed, timed out or were fenced.",
        "After each one its shards are loaded again; the log says why.",
    ),
    Definition(
        "storage_loads",
        "counter",
        "Loads of all shards of a lane, including the first.",
        "More than one per process means that an append failed, or that groupkeeper has a bug. "
        "The log says which.",
    ),
    Definition(
        "storage_load_failures",
        "counter",
        "Loads that failed and were retried.",
        "Grows while the store cannot be read; the log says why.",
    ),
    Definition(
        "storage_load_duration_seconds",
        "gauge",
        "Time of the last load.",
        "The cost of a restart; grows with groups, offsets and unfolded requests.",
    ),
    Definition(
        "storage_unfolded_requests",
        "gauge",
        "Written requests that are not folded yet.",
        "Determines the time of the next start; stays below about 50,000.",
    ),
    Definition(
        "storage_fold_failures",
        "counter",
        "Folds that could not be written; they are retried.",
        "No commit is lost or late, but unfolded requests grow; the log says why (fold_failed).",
    ),
    Definition(
        "storage_round_trips",
        "counter",
        "Requests to the server of a shared store, by call.",
        "An append is one round trip. A fold has several, at most four times a second.",
        labels=("call",),
    ),
    Definition(
        "storage_journal_bytes",
        "gauge",
        "Size of the appends of a shared store that are not folded yet.",
        "A process that takes over must fold them first. It grows while folds fail (fold_failed).",
    ),
    Definition(
        "storage_journal_beyond_bound",
        "gauge",
        "1 if a shared store refuses all writes because of appends that could not be folded.",
        "Alert when it is 1. Nothing acknowledged is lost; the log says why (fold_failed).",
    ),
    Definition(
        "storage_lease_seconds_left",
        "gauge",
        "How long the shards of a shared store may answer without another beat (sign of life).",
        "Below a quarter of cluster.lease_ttl_ms the store is slow. At 0 the shards are LOADING.",
    ),
    Definition(
        "storage_lease_lapses",
        "counter",
        "How often all shards stopped answering because no beat succeeded for too long.",
        "Each one has a line leases_lapsed in the log. Look at the server of the store.",
    ),
    Definition(
        "storage_mirror_lag_seconds",
        "gauge",
        "Age of the oldest change that the mirror in ZooKeeper or Consul does not show yet.",
        "Usually below a few seconds. Above: see mirror_failed in the log, or look for nodes of "
        "other programs there.",
    ),
    Definition(
        "storage_set_backs",
        "counter",
        "How often a shared store had lost durable appends.",
        "Alert above 0: acknowledged commits are lost. Use synchronous replication.",
    ),
    Definition(
        "log_last_seq",
        "gauge",
        "Sequence number of the last durable event.",
        "Its rate is the number of events per second.",
    ),
    Definition(
        "log_bytes",
        "gauge",
        "Bytes of the store's main file, including the event log.",
        "Stays level after old rows are deleted, since their space is reused. Grows while "
        "log_unsealed_rows grows.",
    ),
    Definition(
        "log_unsealed_rows",
        "gauge",
        "Appends whose events are in no segment yet.",
        "Rises and falls with each segment. If it only rises, sealing has stopped: see "
        "log_sealing_failures.",
    ),
    Definition(
        "log_open_segment_age_seconds",
        "gauge",
        "Age of the first event of the open segment; 0 if there is none.",
        "Should not exceed log.segment_ms by more than a few seconds; otherwise reports from the "
        "files are late.",
    ),
    Definition(
        "log_segments_sealed",
        "counter",
        "Segments sealed since the start.",
        "Many a minute: raise log.segment_bytes.",
    ),
    Definition(
        "log_segments_damaged",
        "counter",
        "Segments that could not be read when retention deleted their day, since the start.",
        "Alert when it grows: their events are in no snapshot, and lost. The log line "
        "segment_lost_by_retention names them, and groupkeeper log verify reports them from then "
        "on.",
    ),
    Definition(
        "log_sealing_cpu_seconds",
        "counter",
        "Processor time of the process that seals, which is not part of the daemon's own.",
        "About a tenth of the daemon's own under a load of commits, nothing without commits.",
    ),
    Definition(
        "log_sealing_failures",
        "counter",
        "Times that sealing failed; it is retried every 5 s and nothing is lost.",
        "Alert when it grows: the log line says why, most often a full disk at log.dir. "
        "Until it works, events stay in the store.",
    ),
    Definition(
        "storage_wal_bytes",
        "gauge",
        "Bytes of SQLite's write-ahead log.",
        "Above 100 MB it is likely that a reader keeps a transaction open.",
    ),
    Definition(
        "event_loop_lag_seconds",
        "histogram",
        "Delay of a timer of 250 ms on the event loop.",
        "If the buckets above 0.1 grow, the process lacks CPU time or a request is too large.",
    ),
    Definition(
        "event_loop_callback_cpu_seconds",
        "histogram",
        "CPU time of event loop callbacks that took longer than 1 ms.",
        "If its large buckets do not grow but those of the lag do, the machine is busy with "
        "something else.",
    ),
    Definition(
        "slow_callbacks",
        "counter",
        "Event loop callbacks that used over 100 ms of CPU time.",
        "No request is answered during one. The log names each one; please report it.",
    ),
    Definition(
        "upstream_up",
        "gauge",
        "Gateway mode: 0 if a client's last connection to this broker could not be opened, else 1.",
        "Alert when it is 0 for minutes: clients of this broker cannot connect either.",
        labels=("broker",),
    ),
    Definition(
        "upstream_metadata_age_seconds",
        "gauge",
        "Gateway mode: time since a broker last answered with the brokers and topics.",
        "If it is several times upstream.metadata_refresh_ms, no broker answers. Groups are "
        "served; new topics are not seen.",
    ),
    Definition(
        "upstream_brokers_without_listener",
        "gauge",
        "Gateway mode: brokers that clients cannot reach, as their listener cannot be opened.",
        "Alert when it is not 0. The log says why: listener_port_taken or listener_ports_used_up.",
    ),
    Definition(
        "upstream_connections",
        "gauge",
        "Gateway mode: open connections of clients to this broker.",
        "About as many as connections of clients to its listener.",
        labels=("broker",),
    ),
    Definition(
        "upstream_sent_bytes",
        "counter",
        "Gateway mode: bytes of clients that were passed to this broker.",
        "The traffic of producers.",
        labels=("broker",),
    ),
    Definition(
        "upstream_received_bytes",
        "counter",
        "Gateway mode: bytes of this broker that were passed to clients.",
        "The traffic of consumers.",
        labels=("broker",),
    ),
    Definition(
        "upstream_failures",
        "counter",
        "Gateway mode: failed connections of clients to this broker, by reason.",
        "connect: it could not be reached. Other reasons: it sent bytes that are no reply.",
        labels=("broker", "reason"),
    ),
    Definition(
        "upstream_journal_lost_shards",
        "gauge",
        "Gateway mode: shards that refuse offsets in transactions, as their journal is lost.",
        "Alert when it is not 0: journal_lost in the log says what happened to the topic.",
    ),
    Definition(
        "upstream_open_transactions",
        "gauge",
        "Gateway mode: open transactions with offsets.",
        "One that stays open keeps its partitions unstable: look for a producer that hangs.",
    ),
    Definition(
        "upstream_ended_transactions",
        "counter",
        "Gateway mode: transactions with offsets that have ended.",
        "For capacity: the rate of transactions with offsets.",
    ),
    Definition(
        "upstream_journal_lag_records",
        "gauge",
        "Gateway mode: records and markers of the journal that are not read yet.",
        "It is near 0. If it grows, offsets of transactions count late.",
    ),
    Definition(
        "upstream_adopted_groups",
        "counter",
        "Gateway mode: groups whose offsets were copied from the upstream (upstream.adopt).",
        "When all groups are here, it no longer grows: then set upstream.adopt to false.",
    ),
    Definition(
        "upstream_mirror_lag_seconds",
        "gauge",
        "Gateway mode: age of the oldest commit that upstream.mirror has not sent yet; else 0.",
        "Alert above a minute: if you go back to the upstream, it lacks the newer commits.",
    ),
    Definition(
        "upstream_mirror_refused",
        "counter",
        "Gateway mode: offsets of upstream.mirror that the upstream refused.",
        "The log line mirror_refused says why. Often the group has members at the upstream.",
    ),
    Definition(
        "internal_errors",
        "counter",
        "Bugs in groupkeeper: exceptions while a request was processed or its reply was sent.",
        "Must be 0. The log has the input; please report it.",
    ),
    Definition(
        "events_dropped",
        "counter",
        "Events dropped because too many waited for an append.",
        "Records are never dropped. Happens if requests are refused faster than the disk writes.",
    ),
    Definition(
        "metrics_dropped_series",
        "counter",
        "Series left out of scrapes by metrics.max_series.",
        "Raise metrics.max_series, or find out what causes so many.",
    ),
)
