"""The definitions of all Prometheus metrics.

The daemon counts in plain integers and ``Histogram``. ``exposition`` reads them at each scrape,
through the sources that ``app`` passes.

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
        "Always 1. Its labels are the versions of groupkeeper and Python.",
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
        "A high rate means that a client reconnects in a loop. If its connections are refused, "
        "the log names it.",
    ),
    Definition(
        "connections_closed",
        "counter",
        "Connections of the Kafka port that the server closed, by reason.",
        "idle is normal. Other reasons name a protocol error or a limit. The log has the client's "
        "address.",
        labels=("reason",),
    ),
    Definition(
        "buffered_bytes",
        "gauge",
        "Bytes held for all connections of the Kafka port: incomplete frames, requests that wait "
        "for an answer, and replies that clients have not read.",
        "Compare with kafka.max_buffered_bytes. If it is high for long, clients send much and "
        "read little. connections_closed with the reason memory_budget counts those that were "
        "closed for it.",
    ),
    Definition(
        "reading_paused",
        "counter",
        "How often the daemon stopped reading from a connection for a time, because all "
        "connections together held too many bytes.",
        "It grows if clients hold more than three quarters of kafka.max_buffered_bytes.",
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
        "Connections of the HTTP port that the server closed, and scrapes that it answered with "
        "503, by reason.",
        "too_many_connections: a client keeps silent connections open. request_timeout: a client "
        "sends nothing, or sends very slowly. The log has its address.",
        labels=("reason",),
    ),
    Definition(
        "descriptor_shortages",
        "counter",
        "Seconds in which the process had no file descriptor left.",
        "Must be 0. Otherwise new connections are closed, and the store may fail. Raise the limit "
        "of open files.",
    ),
    Definition(
        "requests",
        "counter",
        "Requests answered, by API, version and the first error of the answer.",
        "COORDINATOR_LOAD_IN_PROGRESS and NOT_COORDINATOR mean that the store was unavailable. "
        "UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION mean that a member was evicted or too slow, and "
        "FENCED_INSTANCE_ID that another client uses its group.instance.id.",
        labels=("api", "version", "error"),
    ),
    Definition(
        "request_duration_seconds",
        "histogram",
        "Time from the start of a request to its reply, by API.",
        "JoinGroup and SyncGroup wait for other members, Fetch for as long as the client asks, "
        "and commits for the disk. If Heartbeat or OffsetFetch take more than 0.1 s, the process "
        "has too much work.",
        labels=("api",),
    ),
    Definition(
        "requests_refused",
        "counter",
        "Requests refused before they were processed. The reasons: loading (the group is being "
        "loaded from the store), overload (the store is too slow).",
        "Clients retry them by themselves. overload means that more requests come than the store "
        "can write.",
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
        "Rebalances of classic groups (join phases begun) and new epochs of consumer groups, by "
        "reason.",
        "Many with session_timeout or join_timeout: clients are stopped or slow, or their "
        "timeouts are too short. Many with member_join and member_leave: clients restart often.",
        labels=("reason",),
    ),
    Definition(
        "group_rebalance_duration_seconds",
        "histogram",
        "Duration of rebalances. In a classic group: from the start of the join phase to the new "
        "generation. In a consumer group: until all members have the partitions of the new epoch.",
        "A classic group consumes nothing in this time. If it is long, the group waits for an "
        "absent member: rebalance_end in the event log names it (awaited).",
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
        "After a rejected commit the client repeats its work. requests_total shows the errors, "
        "and the event log the groups.",
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
        "Target assignments of consumer groups, by assignor. The target is the assignment that a "
        "group should reach. It may be computed in the daemon or in the assignment process.",
        "Fewer than rebalances of consumer groups is normal: one target can serve several epochs.",
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
        "Assignments of consumer groups that the assignment process should compute, by outcome: "
        "computed, raised, invalid, died, timed_out, refused.",
        "Alert on every outcome except computed: assignment_failed in the log says why.",
        labels=("assignor", "outcome"),
    ),
    Definition(
        "consumer_assignment_seconds",
        "counter",
        "Seconds that the assignment process needed for computed assignments, including its start.",
        "If it grows faster than the clock, groups wait for each other's assignments.",
        labels=("assignor",),
    ),
    Definition(
        "consumer_work_waiting",
        "gauge",
        "Consumer groups that wait for the assignment process (assignment), or for the topics "
        "that match their patterns.",
        "If it stays high, see consumer_assignment_seconds.",
        labels=("work",),
    ),
    Definition(
        "consumer_patterns",
        "gauge",
        "Different patterns of topics that the coordinator holds: those of members, and for up to "
        "20 minutes those of former members.",
        "Compare with group.max_patterns.",
    ),
    Definition(
        "consumer_patterns_refused",
        "counter",
        "How often a pattern of a consumer group could not be used. Each try counts.",
        "pattern_refused in the event log has the groups, the patterns and the reasons.",
    ),
    Definition(
        "offset_rewinds",
        "counter",
        "Committed offsets that were lower than the offsets that they replaced, counted by "
        "partition.",
        "Somebody has reset a group, or a client commits an old offset. The event commit in the "
        "event log has both offsets.",
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
        "1 if every shard is loaded from the store, 0 if a shard waits to be loaded.",
        "Alert at 0: until it is 1 again, nothing is acknowledged, and no member is evicted.",
        labels=("backend",),
    ),
    Definition(
        "storage_flush_duration_seconds",
        "histogram",
        "Duration of one append, until it is durable.",
        "Commits wait for it. If it is above 0.1 s, check the disk.",
    ),
    Definition(
        "storage_flush_batch_size",
        "histogram",
        "Requests that one append has written.",
        "Requests that come during an append are written together by the next one. So large "
        "batches are normal under load; they keep a slow disk fast enough.",
    ),
    Definition(
        "storage_failures",
        "counter",
        "Appends that failed, timed out, or were refused by the store because another process has "
        "taken over.",
        "After each one its shards are loaded again. The log says why.",
    ),
    Definition(
        "storage_loads",
        "counter",
        "Loads of shards from the store that succeeded, including those of the start.",
        "A start needs one load, or with topics of Kafka one for each shard. More of them mean "
        "that an append failed, or that groupkeeper has a bug. The log says which.",
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
        "The time of the next start is about the same. It grows with groups, offsets and unfolded "
        "requests.",
    ),
    Definition(
        "storage_unfolded_requests",
        "gauge",
        "Written requests that are not folded yet.",
        "Each start must read them all. It stays below about 50,000.",
    ),
    Definition(
        "storage_fold_failures",
        "counter",
        "Folds that could not be written. They are retried.",
        "No commit is lost or late, but the number of unfolded requests grows. The log says why "
        "(fold_failed).",
    ),
    Definition(
        "storage_round_trips",
        "counter",
        "Requests of the daemon to the server of a shared store, by call.",
        "An append is one request. A beat is one in PostgreSQL and Consul, and a few at the same "
        "time in ZooKeeper. A fold has several, and there are at most four folds a second.",
        labels=("call",),
    ),
    Definition(
        "storage_journal_bytes",
        "gauge",
        "Bytes of the appends of a shared store that are not folded yet.",
        "If another process takes over, it must fold them first. It grows while folds fail "
        "(fold_failed).",
    ),
    Definition(
        "storage_journal_beyond_bound",
        "gauge",
        "1 if a shared store refuses all writes because too many appends could not be folded.",
        "Alert when it is 1. Nothing acknowledged is lost; the log says why (fold_failed).",
    ),
    Definition(
        "storage_lease_seconds_left",
        "gauge",
        "Seconds for which the daemon may still answer if no further report (beat) reaches a "
        "shared store.",
        "If it is below a quarter of cluster.lease_ttl_ms, the store is slow. At 0, clients are "
        "told that the groups are loading.",
    ),
    Definition(
        "storage_lease_lapses",
        "counter",
        "How often the daemon stopped answering because no report (beat) had reached a shared "
        "store for too long.",
        "Each time, the log has a line leases_lapsed. Look at the server of the store.",
    ),
    Definition(
        "storage_mirror_lag_seconds",
        "gauge",
        "Age of the oldest change that is not yet in the nodes for people, which a store in "
        "ZooKeeper or Consul writes in addition (the mirror).",
        "Usually a few seconds. If it is higher, see mirror_failed in the log, or look for nodes "
        "of other programs there.",
    ),
    Definition(
        "storage_set_backs",
        "counter",
        "How often a shared store turned out to be an older state of itself, in which durable "
        "appends were missing.",
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
        "Bytes of the main file of the store, including the events in it.",
        "It does not shrink when old events are deleted, because their space is used again. If "
        "log_unsealed_rows grows, it grows too.",
    ),
    Definition(
        "log_unsealed_rows",
        "gauge",
        "Appends whose events are in no segment yet.",
        "It rises, and falls when a segment is sealed. If it only rises, sealing has stopped: see "
        "log_sealing_failures.",
    ),
    Definition(
        "log_open_segment_age_seconds",
        "gauge",
        "Age of the first event of the open segment, or 0 if no segment is open.",
        "If it is above log.segment_ms by more than a few seconds, sealing is late, and so are "
        "reports from the files.",
    ),
    Definition(
        "log_segments_sealed",
        "counter",
        "Segments sealed since the start.",
        "If there are many a minute, raise log.segment_bytes.",
    ),
    Definition(
        "log_segments_damaged",
        "counter",
        "Segments, since the start, that could not be read when their day was deleted "
        "(log.retention_minutes).",
        "Alert when it grows: the events in them are lost, and missing in the snapshot. The log "
        "line segment_lost_by_retention names the segments, and groupkeeper log verify reports "
        "them from then on.",
    ),
    Definition(
        "log_sealing_cpu_seconds",
        "counter",
        "CPU time of the process that seals segments. It is not part of the daemon's own CPU time.",
        "Under a load of commits it is about a tenth of the daemon's own, without commits nothing.",
    ),
    Definition(
        "log_sealing_failures",
        "counter",
        "How often sealing failed. It is retried every 5 s, and nothing is lost.",
        "Alert when it grows. The log says why, most often a full disk at log.dir. Until sealing "
        "works again, events stay in the store.",
    ),
    Definition(
        "storage_wal_bytes",
        "gauge",
        "Bytes of SQLite's write-ahead log.",
        "Above 100 MB, some reader of the database probably keeps a transaction open.",
    ),
    Definition(
        "event_loop_lag_seconds",
        "histogram",
        "How late a timer of 250 ms is on the event loop.",
        "If the buckets above 0.1 grow, the process gets too little CPU time, or a request is too "
        "large.",
    ),
    Definition(
        "event_loop_callback_cpu_seconds",
        "histogram",
        "CPU time of the event loop's callbacks that took longer than 1 ms.",
        "If event_loop_lag_seconds has large values and this metric has none, the machine is busy "
        "with other processes.",
    ),
    Definition(
        "slow_callbacks",
        "counter",
        "Callbacks of the event loop that used more than 100 ms of CPU time.",
        "While one runs, no request is answered. The log names each one. Please report it.",
    ),
    Definition(
        "upstream_up",
        "gauge",
        "Gateway mode: 0 if a client's last connection to this broker could not be opened, else 1.",
        "Alert when it is 0 for minutes: clients that need this broker cannot connect either.",
        labels=("broker",),
    ),
    Definition(
        "upstream_metadata_age_seconds",
        "gauge",
        "Gateway mode: seconds since a broker last answered with the brokers and topics.",
        "If it is several times upstream.metadata_refresh_ms, no broker answers. Groups are still "
        "served, but new topics are not seen.",
    ),
    Definition(
        "upstream_brokers_without_listener",
        "gauge",
        "Gateway mode: brokers that clients cannot reach, because the daemon cannot open a port "
        "(listener) for them.",
        "Alert when it is not 0. The log says why: listener_port_taken or listener_ports_used_up.",
    ),
    Definition(
        "upstream_connections",
        "gauge",
        "Gateway mode: open connections of clients to this broker.",
        "About as many as clients have opened to the port of this broker.",
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
        "connect: the broker could not be reached. lost: it closed a connection before it had "
        "answered a request. Other reasons: it sent bytes that are no reply.",
        labels=("broker", "reason"),
    ),
    Definition(
        "upstream_journal_lost_shards",
        "gauge",
        "Gateway mode: shards that refuse offsets in transactions, because the topic "
        "upstream.journal_topic has lost data.",
        "Alert when it is not 0: the log line journal_lost says what happened to the topic.",
    ),
    Definition(
        "upstream_open_transactions",
        "gauge",
        "Gateway mode: open transactions that have committed offsets.",
        "As long as one stays open, clients cannot read the committed offsets of its partitions. "
        "Look for a producer that hangs.",
    ),
    Definition(
        "upstream_ended_transactions",
        "counter",
        "Gateway mode: transactions with committed offsets that have ended.",
        "For capacity: its rate is the rate of such transactions.",
    ),
    Definition(
        "upstream_journal_lag_records",
        "gauge",
        "Gateway mode: records and markers of upstream.journal_topic that groupkeeper has not "
        "read yet.",
        "It is near 0. If it grows, offsets of ended transactions become visible late.",
    ),
    Definition(
        "upstream_adopted_groups",
        "counter",
        "Gateway mode: groups whose offsets were copied from the upstream (upstream.adopt).",
        "When all groups are here, it no longer grows. Then set upstream.adopt to false.",
    ),
    Definition(
        "upstream_mirror_lag_seconds",
        "gauge",
        "Gateway mode: age of the oldest commit that upstream.mirror has not copied to the "
        "upstream yet, or 0.",
        "Alert above a minute: if you went back to the upstream now, its offsets would be this "
        "old.",
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
        "Must be 0. The log has the request. Please report it.",
    ),
    Definition(
        "events_dropped",
        "counter",
        "Events that were dropped because too many waited for an append.",
        "This happens if requests are refused faster than the disk writes. Commits and other "
        "state are never dropped.",
    ),
    Definition(
        "metrics_dropped_series",
        "counter",
        "Series that were left out of scrapes because of metrics.max_series.",
        "Raise metrics.max_series, or find out what causes so many.",
    ),
)
