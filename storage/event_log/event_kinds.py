"""The schema of events as data: every kind, and every field with its type and meaning (pure).

``docs/reference/events.md`` is printed from it. Tests compare it with the events that the daemon
writes, and with the schema that the Spark jobs use to read segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EVENT_SCHEMA_VERSION: Final = 2
"""The version increases if a reader of the old schema would misread the new one. It does not
increase for a new field, kind or ``reason``: readers ignore what they do not know."""


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
    BYTES_BY_MEMBER = "map of integers or null"
    """Member id -> integer."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event."""

    name: str
    type: FieldType
    meaning: str
    fields: tuple[Field, ...] = ()
    is_optional: bool = False
    """True if an event omits the field when it has no value."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event: what happened, and the fields that it has besides the common ones."""

    name: str
    meaning: str
    fields: tuple[Field, ...] = ()


_STRING, _INTEGER, _LIST = FieldType.STRING, FieldType.INTEGER, FieldType.LIST
_OR_NULL = FieldType.STRING_OR_NULL

COMMON_FIELDS: Final = (
    Field("log_id", _STRING, "The log that the event belongs to."),
    Field("seq", _INTEGER, "Its number in the store."),
    Field(
        "ts_ms",
        _INTEGER,
        "When it was written, in milliseconds since the epoch, clamped as told above.",
    ),
    Field(
        "clock_ms",
        _INTEGER,
        "What the clock said; there only where it differs from `ts_ms`.",
        is_optional=True,
    ),
    Field(
        "shard",
        _INTEGER,
        "The shard that wrote it; -1 is the cluster's own, which has no groups.",
    ),
    Field("lease_epoch", _INTEGER, "The epoch of the lease that it was written under."),
    Field("kind", _STRING, "One of the kinds below."),
    Field("group", _STRING, 'The group id; "" where an event belongs to none.'),
    Field("group_type", _STRING, '`classic`; "" where an event belongs to no group.'),
    Field(
        "generation",
        _INTEGER,
        "The generation of the group at that moment; -1 where there is none.",
    ),
    Field("member_id", _STRING, 'The member that it is about; "" where there is none.'),
    Field("instance_id", _OR_NULL, "Its `group.instance.id`."),
    Field("client_id", _STRING, "The client id that the request carried."),
    Field("client_host", _STRING, "The peer's address as Kafka prints it: `/127.0.0.1`."),
    Field("principal", _STRING, "Who the client was authenticated as: `User:ANONYMOUS`."),
    Field(
        "api",
        _STRING,
        "The API of the request that caused it, where that tells something: `OffsetCommit`, and "
        "`TxnOffsetCommit` for what an import from Kafka found in a transaction.",
    ),
)
"""The fields of every event."""

_TOPIC = Field("topic", _STRING, "Its name.")
_TOPIC_ID = Field("topic_id", _STRING, 'Its id in Kafka\'s printed form; "" where there is none.')
_PARTITION = Field("partition", _INTEGER, "Its number.")
_LEADER_EPOCH = Field(
    "leader_epoch", _INTEGER, "The leader epoch that the client told; -1 for none."
)
_METADATA = Field("metadata", _STRING, "The text that the client stored with it.")
_COMMIT_TIME = Field("commit_time_ms", _INTEGER, "When it was committed.")
_EXPIRE_TIME = Field(
    "expire_time_ms", _INTEGER, "-1, or after when retention may drop it (OffsetCommit v2-4 say)."
)
_LAST_OFFSET = Field(
    "offset",
    _INTEGER,
    "The last committed offset. Not there where that is not known: an import from Kafka.",
)
_LAST_VALUES = (_PARTITION, _LAST_OFFSET, _LEADER_EPOCH, _METADATA, _COMMIT_TIME)


def _topics(*partition: Field, name: str = "topics", meaning: str = "One entry a topic.") -> Field:
    partitions = Field("partitions", _LIST, "One entry a partition.", partition)
    return Field(name, _LIST, meaning, (_TOPIC, _TOPIC_ID, partitions))


_REFUSAL = (
    Field("error", _STRING, "The error code by Kafka's name: `ILLEGAL_GENERATION`."),
    Field("count", _INTEGER, "How many refusals this event stands for."),
)
_CLIENTS_REASON = Field("reason", _OR_NULL, "The reason that the client gave.")

KINDS: Final = (
    Kind(
        "commit",
        "Offsets of a group were committed, in one request. A generation of -1 without a member is "
        "an administrator's reset, or a consumer that uses no group management; a client id that "
        "begins with `groupkeeper-restore/` is a restore, and the plan's id follows. One of the "
        "API `TxnOffsetCommit` is neither.",
        (
            Field("commit_time_ms", _INTEGER, "The commit time that is kept with the offsets."),
            Field(
                "expire_time_ms",
                _INTEGER,
                "-1, or after when retention may drop them (OffsetCommit v2-4 name it).",
            ),
            _topics(
                _PARTITION,
                Field("offset", _INTEGER, "The committed offset."),
                Field(
                    "previous_offset",
                    _INTEGER,
                    "The offset that it replaces; -1 where there was none. Not there where that is "
                    "not known: an import from Kafka, whose compaction took what was before.",
                    is_optional=True,
                ),
                _LEADER_EPOCH,
                _METADATA,
            ),
        ),
    ),
    Kind(
        "commit_rejected",
        "A commit was refused as a whole. The first refusal of a member is an event at once; "
        "repeats are merged into one event a 10 s window.",
        _REFUSAL,
    ),
    Kind(
        "member_fenced",
        "A request of a member was refused because another took its place or its generation is "
        "over. Merged like `commit_rejected`.",
        _REFUSAL,
    ),
    Kind(
        "member_join",
        "A member was added, or a static member came back under a new id.",
        (
            Field(
                "protocols",
                FieldType.STRINGS,
                "The protocols that it offers, its favourite first.",
            ),
            Field("session_timeout_ms", _INTEGER, "Its session timeout."),
            Field("rebalance_timeout_ms", _INTEGER, "Its rebalance timeout."),
            Field("replaces", _OR_NULL, "The member id that a static member had before."),
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
                "`session_timeout`: nothing was heard of it. `join_timeout`: it did not come back "
                "in a rebalance. `sync_timeout`: it did not fetch its assignment. "
                "`new_member_timeout`: it was new and its first join took too long. "
                "`group_max_size`: the group was full.",
            ),
        ),
    ),
    Kind(
        "rebalance_start",
        "A join phase began; `member_id` is the member that caused it.",
        (
            Field(
                "reason",
                _STRING,
                "`member_join`, `member_leave`, `member_changed` (it joined again and said "
                "something else: another subscription, or, in the second step of a cooperative "
                "rebalance, other partitions that it owns), `leader_rejoin` (the leader joined "
                "again and said the same), `static_member_rejoin`, or the reason of an eviction.",
            ),
            Field("members", _INTEGER, "Members at that moment."),
        ),
    ),
    Kind(
        "rebalance_end",
        "A join phase was completed: there is a new generation.",
        (
            Field("duration_ms", _INTEGER, "How long it took from its start."),
            Field("members", _INTEGER, "Members of the new generation."),
            Field("awaited", FieldType.STRINGS, "Member ids that did not come back in time."),
            Field("protocol_name", _OR_NULL, "The protocol that was chosen."),
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
                "Member id, then topic, then a list of partitions; null for another protocol type.",
            ),
            Field(
                "opaque_bytes",
                FieldType.BYTES_BY_MEMBER,
                "Member id to the size of its assignment, where it cannot be decoded.",
            ),
        ),
    ),
    Kind("group_created", "A group came to be."),
    Kind(
        "group_deleted",
        "A group went.",
        (
            Field("reason", _STRING, "`expired`, or `deleted` by an administrator."),
            Field("offsets", _INTEGER, "How many committed offsets went with it."),
        ),
    ),
    Kind(
        "offset_expired",
        "Retention dropped committed offsets of a group. The values are the last ones, so they can "
        "be restored.",
        (_topics(*_LAST_VALUES),),
    ),
    Kind(
        "offset_deleted",
        "Committed offsets of a group were deleted. The values are the last ones, so they can be "
        "restored.",
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
        "The offsets of a group as they stood at the horizon: written when the segments before it "
        "go (see above), and never by the store itself. One of no group says that nothing was ever "
        "committed.",
        (
            _topics(*_LAST_VALUES, _EXPIRE_TIME, meaning="What was committed, one entry a topic."),
            _topics(
                *_LAST_VALUES,
                Field("lost_ts_ms", _INTEGER, "When it went: `ts_ms` of the event that told it."),
                Field("reason", _STRING, "`expired`, or the reason of the `offset_deleted` event."),
                name="lost",
                meaning="What had expired or been deleted, with the last values.",
            ),
        ),
    ),
    Kind(
        "end_offset",
        "A sample of partitions' ends: those that changed since the last sample, once a minute "
        "(`log.end_offset_interval_ms`), and after a start all that are above 0. In static mode an "
        "end is the largest offset that any group committed, or what the config names.",
        (
            _topics(
                _PARTITION,
                Field("offset", _INTEGER, "Its end: the offset that the next message gets."),
            ),
        ),
    ),
    Kind(
        "shard_loaded",
        "A shard was read from storage and answers again. `shard` tells which.",
        (
            Field("groups", _INTEGER, "Groups in it."),
            Field("offsets", _INTEGER, "Committed offsets in it."),
            Field("duration_ms", _INTEGER, "How long it took."),
        ),
    ),
    Kind(
        "admin_action",
        "An administrator changed something that is not an offset.",
        (
            Field("action", _STRING, "`set_topic`, `delete_topic`, `alter_group_configs`."),
            Field("target", _STRING, "What was changed: the name of the topic, or of the group."),
            Field(
                "detail",
                _STRING,
                "`partitions=12`; of configs, what was set (`key=value`) and what was taken back "
                "(`-key`).",
            ),
        ),
    ),
    Kind(
        "log_started",
        "The first event of each log but the first of a store: which log came before, and how far "
        "that one went. Events of that log with a larger `seq` were written by a store that an "
        "older copy took the place of. Logs from before 0.2.0 begin without it.",
        (
            Field(
                "previous_log_id",
                _OR_NULL,
                "The log before; null where a store that 0.1.0 wrote does not know it any more.",
            ),
            Field("previous_seq", _INTEGER, "The `seq` of its last event."),
            Field(
                "reason",
                _STRING,
                "`start`: of the daemon, or of the program that embeds a coordinator. "
                "`clock_set_back`: by more than 10 s. `older_store`: a start that found segments "
                "of events which the store does not have.",
            ),
        ),
    ),
)
"""Every kind of event, in the order of the documentation."""


def kind_of(name: str) -> Kind:
    """Return a kind by its name. Raises KeyError if there is none."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise KeyError(name)
