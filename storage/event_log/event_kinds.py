"""The schema of events as data: every kind, and every field with its type and meaning (pure).

``docs/reference/events.md`` is printed from it. Tests compare it with the events that the daemon
writes, and with the schema that the Spark jobs use to read segments.

This file is long because it is one table: every kind and field with its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EVENT_SCHEMA_VERSION: Final = 2
"""The version increases if a reader of the old schema would misread the new one. It does not
increase for a new field, kind or ``reason``, because readers ignore unknown ones.
"""


DATA_LOG_PREFIX: Final = "data-ends-"
"""The beginning of the id of a log with samples of the true ends of partitions (``data_ends``). The
pipeline gets these ends from the brokers that hold the records.
"""


class FieldType(StrEnum):
    """The type of a field. Integers have 64 bits."""

    STRING = "string"
    STRING_OR_NULL = "string or null"
    INTEGER = "integer"
    STRINGS = "list of strings"
    LIST = "list"
    """A list of objects. ``Field.fields`` has their fields."""
    PARTITIONS_BY_MEMBER = "map or null"
    """Member id -> topic -> list of partitions."""
    PARTITIONS_BY_TOPIC = "map"
    """Topic -> list of partitions."""
    BYTES_BY_MEMBER = "map of integers or null"
    """Member id -> number of bytes."""


@dataclass(frozen=True, slots=True)
class Field:
    """The name, type and meaning of one field of an event."""

    name: str
    type: FieldType
    meaning: str
    fields: tuple[Field, ...] = ()
    is_optional: bool = False
    """True if events without a value leave the field out."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event: its meaning, and its own fields in addition to the common ones."""

    name: str
    meaning: str
    fields: tuple[Field, ...] = ()


_STRING, _INTEGER, _LIST = FieldType.STRING, FieldType.INTEGER, FieldType.LIST
_OR_NULL = FieldType.STRING_OR_NULL

COMMON_FIELDS: Final = (
    Field("log_id", _STRING, "The log that the event belongs to."),
    Field("seq", _INTEGER, "The number of the event: events of a store are counted from 1."),
    Field(
        "ts_ms",
        _INTEGER,
        "When it was written, in milliseconds since the epoch. It never decreases within a log.",
    ),
    Field(
        "clock_ms",
        _INTEGER,
        "The wall clock, only if it differs from `ts_ms`.",
        is_optional=True,
    ),
    Field(
        "shard",
        _INTEGER,
        "The shard that wrote it; -1 for the shard of topics, which has no groups.",
    ),
    Field(
        "lease_epoch",
        _INTEGER,
        "A number of the shard. It grows whenever a process takes over the shard, or loads it "
        "again.",
    ),
    Field("kind", _STRING, "One of the kinds below."),
    Field("group", _STRING, 'The group id; "" if the event belongs to no group.'),
    Field(
        "group_type",
        _STRING,
        'The type of the group at that moment: `classic` or `consumer`; "" if the event belongs '
        "to no group.",
    ),
    Field(
        "generation",
        _INTEGER,
        "The generation of the group at that moment; -1 if there is none. In a consumer group: the "
        "epoch of the member, or of the group if the event is about all members. A member that has "
        "just joined has epoch 0; a static member that left for a short time has -2.",
    ),
    Field("member_id", _STRING, 'The member that the event is about; "" if there is none.'),
    Field("instance_id", _OR_NULL, "Its `group.instance.id`."),
    Field("client_id", _STRING, "The client id of the request."),
    Field("client_host", _STRING, "The peer's address as Kafka prints it: `/127.0.0.1`."),
    Field("principal", _STRING, "The authenticated client: `User:ANONYMOUS`."),
    Field(
        "api",
        _STRING,
        "The API of the request that caused the event, if it adds information: `OffsetCommit`, or "
        "`TxnOffsetCommit` for an offset that was committed with a transaction.",
    ),
)
"""The fields of every event."""

_TOPIC = Field("topic", _STRING, "Its name.")
_TOPIC_ID = Field("topic_id", _STRING, 'Its id in Kafka\'s printed form; "" if it has none.')
_PARTITION = Field("partition", _INTEGER, "Its number.")
_LEADER_EPOCH = Field(
    "leader_epoch", _INTEGER, "The leader epoch that the client sent; -1 if it sent none."
)
_METADATA = Field("metadata", _STRING, "The text that the client stored with the offset.")
_COMMIT_TIME = Field("commit_time_ms", _INTEGER, "When it was committed.")
_EXPIRE_TIME = Field(
    "expire_time_ms",
    _INTEGER,
    "When retention may delete it (OffsetCommit v2-4 send that); -1 if not set.",
)
_LAST_OFFSET = Field(
    "offset",
    _INTEGER,
    "The last committed offset. An import from Kafka omits it if it is unknown.",
    is_optional=True,
)
_LAST_VALUES = (_PARTITION, _LAST_OFFSET, _LEADER_EPOCH, _METADATA, _COMMIT_TIME)


def _topics(*partition: Field, name: str = "topics", meaning: str = "One entry a topic.") -> Field:
    partitions = Field("partitions", _LIST, "One entry a partition.", partition)
    return Field(name, _LIST, meaning, (_TOPIC, _TOPIC_ID, partitions))


_REFUSAL = (
    Field("error", _STRING, "The error code by Kafka's name: `ILLEGAL_GENERATION`."),
    Field("count", _INTEGER, "How many refusals this event reports."),
)
_CLIENTS_REASON = Field("reason", _OR_NULL, "The reason that the client gave.")

KINDS: Final = (
    Kind(
        "commit",
        "Offsets of a group were committed in one request. If the generation is -1 and there is no "
        "member, an administrator reset them, or a consumer without group management committed. "
        "If the client id begins with `groupkeeper-restore/`, it was a restore, and the plan's id "
        "follows. A commit of the API `TxnOffsetCommit` is neither.",
        (
            Field("commit_time_ms", _INTEGER, "The commit time that is stored with the offsets."),
            Field(
                "expire_time_ms",
                _INTEGER,
                "When retention may delete them (OffsetCommit v2-4 send that); -1 if not set.",
            ),
            _topics(
                _PARTITION,
                Field("offset", _INTEGER, "The committed offset."),
                Field(
                    "previous_offset",
                    _INTEGER,
                    "The offset that it replaces; -1 if there was none. An import from Kafka omits "
                    "it if compaction may have removed earlier commits.",
                    is_optional=True,
                ),
                _LEADER_EPOCH,
                _METADATA,
            ),
        ),
    ),
    Kind(
        "commit_rejected",
        "A commit was refused as a whole. The first refusal of a member is written at once. Its "
        "repeats within 10 s are merged into one event.",
        _REFUSAL,
    ),
    Kind(
        "member_fenced",
        "A request of a member was refused, because another member has replaced it or its "
        "generation has ended. A heartbeat of a consumer group can also be refused because the "
        "group or the coordinator has no room (`error`). Repeats are merged as for "
        "`commit_rejected`.",
        _REFUSAL,
    ),
    Kind(
        "member_join",
        "A member was added, or a static member rejoined with a new id.",
        (
            Field(
                "protocols",
                FieldType.STRINGS,
                "The protocols that it supports, in its order of preference.",
            ),
            Field("session_timeout_ms", _INTEGER, "Its session timeout."),
            Field("rebalance_timeout_ms", _INTEGER, "Its rebalance timeout."),
            Field("replaces", _OR_NULL, "The previous member id of a static member."),
            _CLIENTS_REASON,
        ),
    ),
    Kind("member_leave", "A member left, or an administrator removed it.", (_CLIENTS_REASON,)),
    Kind(
        "member_evicted",
        "The coordinator removed a member.",
        (
            Field(
                "reason",
                _STRING,
                "`session_timeout`: it sent no heartbeat in time. `join_timeout`: it did not "
                "rejoin in a rebalance. `sync_timeout`: it did not fetch its assignment. "
                "`rebalance_timeout`: in a consumer group, it did not give up partitions in time. "
                "`new_member_timeout`: its first join took too long. "
                "`group_max_size`: the group was full.",
            ),
        ),
    ),
    Kind(
        "rebalance_start",
        "A join phase began, or a new epoch of a consumer group; `member_id` is the member that "
        "caused it. A consumer group can have several epochs until its next `rebalance_end`.",
        (
            Field(
                "reason",
                _STRING,
                "`member_join`, `member_leave`, `member_changed` (it rejoined with other metadata: "
                "another subscription or, in the second step of a cooperative rebalance, other "
                "owned partitions), `leader_rejoin` (the leader rejoined with the same metadata), "
                "`static_member_rejoin`, or the reason of an eviction. `downgrade`: a consumer "
                "group became a classic one. Only in consumer groups: `subscription_changed`; "
                "`topics_changed` (a subscribed topic was created, deleted or got partitions, or "
                "nobody reads some partitions of a classic group that became a consumer group); "
                "`pattern_resolved` (other topics match a pattern).",
            ),
            Field("members", _INTEGER, "The number of members at that moment."),
        ),
    ),
    Kind(
        "rebalance_end",
        "A join phase ended with a new generation, or every member of a consumer group has what "
        "the target assignment gives it. A consumer group has no protocol and no leader.",
        (
            Field("duration_ms", _INTEGER, "The time since its start."),
            Field("members", _INTEGER, "The number of members of the new generation."),
            Field("awaited", FieldType.STRINGS, "The ids of members that did not rejoin in time."),
            Field("protocol_name", _OR_NULL, "The chosen protocol."),
            Field("leader_id", _OR_NULL, "The member that computes the assignment."),
        ),
    ),
    Kind(
        "assignment",
        "The leader's assignment was stored.",
        (
            Field("protocol_type", _STRING, "`consumer` for consumers."),
            Field("protocol_name", _OR_NULL, "The protocol of the generation."),
            Field(
                "partitions",
                FieldType.PARTITIONS_BY_MEMBER,
                "By member id, then by topic, a list of partitions; null if `opaque_bytes` is set.",
            ),
            Field(
                "opaque_bytes",
                FieldType.BYTES_BY_MEMBER,
                "By member id, the size of its assignment. Set for other protocol types, and if "
                "the assignments cannot be decoded or are too large for that; otherwise null.",
            ),
        ),
    ),
    Kind(
        "target_assignment",
        "The coordinator computed a new target assignment for a consumer group; `generation` is "
        "its epoch. Members follow it one by one (`partitions_moved`).",
        (
            Field("assignor", _STRING, "The assignor that computed it: `uniform`, `range`."),
            Field("members", _INTEGER, "The number of members at that moment."),
            Field("changed_members", _INTEGER, "The number of members whose target changed."),
            Field(
                "targets",
                FieldType.PARTITIONS_BY_MEMBER,
                "The targets that changed: by member id, then by topic, a list of partitions; null "
                "if they are too large to be listed.",
            ),
        ),
    ),
    Kind(
        "assignment_failed",
        "The coordinator could not compute a new target assignment for a consumer group, or could "
        "not store it; `generation` is the epoch that it was for. The members keep what they have. "
        "It is tried again after the assignment interval. Repeats of a group are merged as for "
        "`commit_rejected`.",
        (
            Field("assignor", _STRING, "The assignor that was to compute it."),
            Field(
                "reason",
                _STRING,
                "`raised`: the assignor raised an exception. `invalid`: its assignment breaks the "
                "rules. `died`: its process ended. `timed_out`: it took longer than "
                "`group.consumer_assignment_timeout_ms`. `refused`: too many assignments wait. "
                "`too_large`: the group would be too large to store.",
            ),
            Field("detail", _STRING, "The reason in words, at most 255 characters."),
            Field("members", _INTEGER, "The number of members at that moment."),
            Field("count", _INTEGER, "How many failures this event reports."),
        ),
    ),
    Kind(
        "pattern_refused",
        "A pattern (regular expression) of a consumer group cannot be used. If `member_id` is set, "
        "this member was refused with INVALID_REGULAR_EXPRESSION. Otherwise the topics of the "
        "pattern were not found, and the group keeps those that it had. Repeats of a group are "
        "merged as for `commit_rejected`; then the event has the last pattern.",
        (
            Field("pattern", _STRING, "The pattern, at most 255 characters of it."),
            Field("detail", _STRING, "Why it cannot be used, at most 255 characters."),
            Field("count", _INTEGER, "How many refusals this event reports."),
        ),
    ),
    Kind(
        "partitions_moved",
        "A member of a consumer group got partitions, or no longer owns them; `generation` is its "
        "epoch. A topic that was deleted before the last load of the shard is named by its id.",
        (
            Field(
                "reason",
                _STRING,
                "`target_assignment`: the member followed its target. `static_member_rejoin`: a "
                "static member rejoined with a new id, which got the partitions of the old id. "
                "`member_leave`: it left. Or the reason of its eviction.",
            ),
            Field(
                "gained_partitions",
                FieldType.PARTITIONS_BY_TOPIC,
                "By topic, the partitions that it owns now and did not own before.",
            ),
            Field(
                "lost_partitions",
                FieldType.PARTITIONS_BY_TOPIC,
                "By topic, the partitions that it does not own any more.",
            ),
        ),
    ),
    Kind(
        "group_converted",
        "A group changed its type, because a client of the other protocol joined, or because only "
        "clients of the other protocol were left. Its offsets stay. `member_id` is the member that "
        "joined, if one did. When a consumer group becomes a classic one, an event `assignment` "
        "follows.",
        (
            Field("from_type", _STRING, "Its type before: `classic` or `consumer`."),
            Field("to_type", _STRING, "Its new type."),
            Field("members", _INTEGER, "The number of members that it kept."),
        ),
    ),
    Kind("group_created", "A group was created."),
    Kind(
        "group_deleted",
        "A group was deleted.",
        (
            Field("reason", _STRING, "`expired`, or `deleted` by an administrator."),
            Field("offsets", _INTEGER, "The number of its committed offsets."),
        ),
    ),
    Kind(
        "offset_expired",
        "Retention deleted committed offsets of a group. The event has their last values, so they "
        "can be restored.",
        (_topics(*_LAST_VALUES),),
    ),
    Kind(
        "offset_deleted",
        "Committed offsets of a group were deleted. The event has their last values, so they can "
        "be restored. When a group is deleted, `metadata` is empty as long as the group has more "
        "than 128 MiB of offsets and metadata.",
        (
            Field(
                "reason",
                _STRING,
                "`topic_deleted`, `group_deleted`, or `deleted` by an administrator.",
            ),
            _topics(*_LAST_VALUES),
        ),
    ),
    Kind(
        "offset_snapshot",
        "The offsets of a group at the horizon (see above). It is written into a segment when the "
        "segments before the horizon are deleted. If the event has no group, nothing was ever "
        "committed.",
        (
            _topics(
                *_LAST_VALUES, _EXPIRE_TIME, meaning="The committed offsets, one entry a topic."
            ),
            _topics(
                *_LAST_VALUES,
                Field(
                    "lost_ts_ms", _INTEGER, "When it expired or was deleted: `ts_ms` of that event."
                ),
                Field("reason", _STRING, "`expired`, or the reason of the `offset_deleted` event."),
                name="lost",
                meaning="Expired and deleted offsets, with their last values.",
            ),
        ),
    ),
    Kind(
        "end_offset",
        "A sample of the ends of partitions, once a minute (`log.end_offset_interval_ms`). It has "
        "the ends that changed since the last sample; after a start, all ends above 0. Except in "
        "gateway mode, an end is the largest offset that any group committed, or the end in the "
        "config.",
        (
            _topics(
                _PARTITION,
                Field("offset", _INTEGER, "Its end: the offset of the next message."),
            ),
        ),
    ),
    Kind(
        "shard_loaded",
        "The shard `shard` was loaded from storage and serves requests again.",
        (
            Field("groups", _INTEGER, "The number of its groups."),
            Field("offsets", _INTEGER, "The number of its committed offsets."),
            Field("duration_ms", _INTEGER, "The duration of the load."),
        ),
    ),
    Kind(
        "admin_action",
        "An administrator changed something that is not an offset.",
        (
            Field("action", _STRING, "`set_topic`, `delete_topic`, `alter_group_configs`."),
            Field("target", _STRING, "The name of the changed topic or group."),
            Field(
                "detail",
                _STRING,
                "`partitions=12`; for configs, each one that was set (`key=value`) or removed "
                "(`-key`).",
            ),
        ),
    ),
    Kind(
        "log_started",
        "The first event of each log, except the first log of a store. It names the previous log "
        "and that log's last event. If the previous log has events with a larger `seq`, an older "
        "copy of the store was restored, and these events do not count. Logs from before 0.2.0 "
        "begin without this event.",
        (
            Field(
                "previous_log_id",
                _OR_NULL,
                "The previous log; null if a store of 0.1.0 does not know it any more.",
            ),
            Field("previous_seq", _INTEGER, "The `seq` of its last event."),
            Field(
                "reason",
                _STRING,
                "`start`: the daemon, or the program that embeds a coordinator, was started. "
                "`clock_set_back`: the clock was set back by more than 10 s. `older_store`: a "
                "start found segments with events that the store does not have, or a store in a "
                "database lost events, for example because an asynchronous standby was promoted.",
            ),
            Field(
                "store",
                _STRING,
                "The name of the store: all its logs share it. It is the id of the first log, or "
                "of the last one that an older version wrote. In a shared database `/` and the "
                'node (`kafka.node_id`) follow. "" if an older version wrote this. In topics of '
                "Kafka it is a random id, followed by `/shard-` and the shard.",
            ),
        ),
    ),
)
"""Every kind of event, in the order of the documentation."""
