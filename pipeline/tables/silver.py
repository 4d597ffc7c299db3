"""Silver: moves of offsets and sessions of members, computed from events.

Every table is computed from events only. The state that a day carries to later days is a set of
events too (``carried_events``). So the same functions can compute a day from the carried events and
its own events, or from the whole history.

A row shows the state at the end of its day. A session of three days has a row on each of these
days, and only the last row has the end of the session.

This file is long because it is a list: one function for each table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.columns import EVENT_SCHEMA
from groupkeeper.pipeline.log.kinds import DATA_STORE
from groupkeeper.pipeline.tables.bronze import with_day
from groupkeeper.pipeline.tables.days import day_of, until_its_day
from groupkeeper.pipeline.tables.lake import DAY
from groupkeeper.pipeline.tables.offsets import event_order, offset_changes
from groupkeeper.pipeline.tables.rebalances import MOVED, given, static_names
from groupkeeper.storage.event_log.event_kinds import DATA_LOG_PREFIX

RESTORE_CLIENT_PREFIX: Final = "groupkeeper-restore/"
"""The prefix of a restore's client id; the plan's id follows."""

TXN_OFFSET_COMMIT: Final = "TxnOffsetCommit"
"""The API of a commit within a transaction. No administrator's tool uses it."""

SKIP_MESSAGES: Final = 100_000
"""If a member moves an offset forward by at least this number of messages at once, the messages
count as skipped, not as consumed."""

CONSUMER: Final = "consumer"
"""The ``group_type`` of groups of the consumer protocol (KIP-848)."""


# --- offsets --------------------------------------------------------------------------------------


def commit_deltas(events: DataFrame, skip_messages: int = SKIP_MESSAGES) -> DataFrame:
    """Return one row for each partition of each commit, with the move of the offset and its cause.

    ``delta`` is the number of messages moved; null if there was no offset before. ``cause`` is one
    of:
    - ``member``: a member, or a transaction, even if its member has left since
    - ``restore``: a plan of groupkeeper
    - ``reset``: an administrator, or a consumer without a group (generation -1)

    ``is_rewind`` is True for a move back, and ``is_duplicate`` if the offset did not move.
    ``is_skip`` is True for a move forward over messages that the group did not consume. Such a move
    is a reset, a restore, or a move by ``skip_messages`` or more at once.
    """
    moves = offset_changes(events.where(F.col("kind") == "commit")).drop("kind", "reason", "is_set")
    delta = F.when(F.col("previous_offset") >= 0, F.col("offset") - F.col("previous_offset")).alias(
        "delta"
    )
    moves = moves.select("*", delta, _cause().alias("cause")).drop("api")
    by_hand = F.col("cause") != "member"
    forward = F.coalesce(F.col("delta") > 0, F.lit(False))
    return with_day(moves).select(
        "*",
        F.coalesce(F.col("delta") < 0, F.lit(False)).alias("is_rewind"),
        (forward & (by_hand | (F.col("delta") >= skip_messages))).alias("is_skip"),
        F.coalesce(F.col("delta") == 0, F.lit(False)).alias("is_duplicate"),
    )


def other_changes(events: DataFrame) -> DataFrame:
    """Return the changes of offsets other than commits: offsets that expired or were deleted, and
    offsets in snapshots. A snapshot repeats the offsets that deleted events had set.
    """
    return with_day(offset_changes(events.where(F.col("kind") != "commit"))).drop("api")


def end_offsets(events: DataFrame) -> DataFrame:
    """Return one row for each partition of each sample of end offsets.

    ``store`` is ``DATA_STORE`` if the sample is from the brokers that hold the records. Any other
    sample is from a coordinator. Its ends are the offsets of the furthest group, which may be
    behind the true ends.
    """
    is_of_data = F.col("log_id").startswith(DATA_LOG_PREFIX)
    store = F.when(is_of_data, F.lit(DATA_STORE)).otherwise(F.col("store")).alias("store")
    topics = events.where(F.col("kind") == "end_offset").select(
        store, "ts_ms", "lease_epoch", "seq", F.explode("topics").alias("t")
    )
    rows = topics.select("*", F.explode("t.partitions").alias("p"))
    return with_day(rows).select(
        "store",
        F.col("t.topic").alias("topic"),
        F.col("p.partition").alias("partition"),
        F.col("p.offset").alias("offset"),
        "ts_ms",
        "lease_epoch",
        "seq",
        DAY,
    )


def _cause() -> Column:
    in_transaction = F.coalesce(F.col("api") == TXN_OFFSET_COMMIT, F.lit(False))
    outside = (F.col("generation") < 0) & (F.col("member_id") == "") & ~in_transaction
    restore = F.col("client_id").startswith(RESTORE_CLIENT_PREFIX)
    return F.when(outside & restore, "restore").when(outside, "reset").otherwise("member")


# --- members --------------------------------------------------------------------------------------


def member_sessions(events: DataFrame, forgotten: DataFrame, days: Sequence[date]) -> DataFrame:
    """Return one row for each session of a member and each day of the session. A row has the time
    of the join, and the time and reason of the end.

    ``ended_by`` is null in the rows of the days before the end. In the row of the last day it is
    one of:
    - ``leave``
    - ``replaced``: a static member came back under a new member id
    - ``forgotten``: the coordinator lost the member in a crash
    - the reason of an eviction

    After a crash, the coordinator may have a member again whose session had ended, so that the
    session ends a second time. Then the rows of the first end stay. The second end has its own row,
    without a join.
    """
    member = ("store", "group", "member_id")
    joins = events.where(F.col("kind") == "member_join")
    begins = joins.select(*member, event_order().alias("order"), F.struct(*_JOIN).alias("join"))
    steps = begins.unionByName(_ends(events, forgotten), allowMissingColumns=True)
    before = Window.partitionBy(*member).orderBy("order")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    lives = steps.withColumn("life", F.count("end").over(before)).groupBy(*member, "life")
    sessions = lives.agg(
        F.min_by("join", "order").alias("join"), F.first("end", ignorenulls=True).alias("end")
    ).select(
        *member,
        *(F.col(f"join.{name}").alias(name) for name in _JOIN[:4]),
        F.col("join.reason").alias("join_reason"),
        F.col("join.ts_ms").alias("joined_ms"),
        F.col("end.ts_ms").alias("ended_ms"),
        F.col("end.by").alias("ended_by"),
    )
    by_day = _on_each_day(sessions, F.coalesce("joined_ms", "ended_ms"), F.col("ended_ms"), days)
    ended_by = until_its_day("ended_ms", "ended_by")
    ended_ms = until_its_day("ended_ms", "ended_ms")
    by_day = by_day.withColumn("ended_by", ended_by).withColumn("ended_ms", ended_ms)
    return by_day.withColumn("duration_ms", F.col("ended_ms") - F.col("joined_ms"))


_JOIN: Final = ("instance_id", "client_id", "client_host", "principal", "reason", "ts_ms")
"""The fields of ``member_join`` from which a session is described."""


def _ends(events: DataFrame, forgotten: DataFrame) -> DataFrame:
    """Return the end of each membership: for each member and day, the last end on this day."""

    def of(rows: DataFrame, by: Column, member_id: str = "member_id") -> DataFrame:
        end = F.struct("ts_ms", by.alias("by")).alias("end")
        member = ("store", "group", F.col(member_id).alias("member_id"))
        return with_day(rows).select(*member, event_order().alias("order"), end, DAY)

    kind = F.col("kind")
    by = F.when(kind == "member_leave", "leave").otherwise(F.col("reason"))
    gone = of(events.where(kind.isin("member_leave", "member_evicted")), by)
    is_replacement = (kind == "member_join") & F.col("replaces").isNotNull()
    told = gone.unionByName(of(events.where(is_replacement), F.lit("replaced"), "replaces"))
    # a member that has left is not counted as forgotten
    same = [F.col(f"lost.{name}") == F.col(f"told.{name}") for name in ("store", "group")]
    same += [F.col("lost.member_id") == F.col("told.member_id"), F.expr("told.order < lost.order")]
    lost = forgotten.alias("lost").join(told.alias("told"), same, "left_anti")
    end = F.struct("ts_ms", F.lit("forgotten").alias("by")).alias("end")
    lost = lost.select("store", "group", "member_id", "order", end, DAY)
    ends = told.unionByName(lost).groupBy("store", "group", "member_id", DAY)
    return ends.agg(F.max_by("end", "order").alias("end"), F.max("order").alias("order")).drop(DAY)


def forgotten_members(events: DataFrame, days: Sequence[date]) -> DataFrame:
    """Return the members that the coordinator lost in a crash. Each row has the time and the
    ``order`` (``event_order``) of the event that shows the loss.

    The coordinator stores a new member of a classic group only with the next assignment. If the
    shard is loaded again before that, because the coordinator was killed or could not write, the
    member is lost, and no event reports this. One of these events shows the loss: ``shard_loaded``
    after the join, an assignment without the member, or the end of a rebalance with 0 members.
    """
    kind = F.col("kind")
    tells_all = (kind == "assignment") | ((kind == "rebalance_end") & (F.col("members") == 0))
    names = F.coalesce(
        F.map_keys("partitions"), F.map_keys("opaque_bytes"), F.array().cast("array<string>")
    )
    is_wanted = kind.isin("member_join", "shard_loaded") | tells_all
    steps = events.where(is_wanted).select(
        *("store", "group", "group_type", "shard", "kind"),
        *("member_id", "instance_id", "replaces", "ts_ms"),
        event_order().alias("order"),
        F.when(tells_all, names).alias("names"),
    )
    # Each event needs the next events after it. Spark is slow in that direction, so the order is
    # reversed.
    later = F.col("order").desc()
    of_group = Window.partitionBy("store", "group").orderBy(later)
    of_shard = Window.partitionBy("store", "shard").orderBy(later)
    told = F.when(F.col("names").isNotNull(), F.struct("order", "ts_ms", "names"))
    steps = steps.withColumn("told", F.last(told, ignorenulls=True).over(of_group))
    is_named = F.array_contains("told.names", F.col("member_id")) | F.array_contains(
        "told.names", F.col("instance_id")
    )
    # a consumer group stores each member when it joins
    is_named = _is_of_consumer_group() | F.coalesce(is_named, F.lit(False))
    steps = steps.where(kind.isin("member_join", "shard_loaded")).select(
        *("store", "group", "shard", "kind", "member_id", "replaces", "order", "ts_ms"),
        is_named.alias("is_named"),
        F.when(F.col("told").isNotNull(), F.struct("told.order", "told.ts_ms")).alias("told"),
    )
    loaded = F.when(kind == "shard_loaded", F.struct("order", "ts_ms"))
    steps = steps.withColumn("loaded", F.last(loaded, ignorenulls=True).over(of_shard))
    # the new id of a static member is stored at once if there is no rebalance
    loss = F.least(F.when(F.col("replaces").isNull(), F.col("loaded")), F.col("told"))
    lost = steps.where((kind == "member_join") & ~F.col("is_named")).withColumn("loss", loss)
    return (
        lost.where(F.col("loss").isNotNull())
        .groupBy("store", "group", "member_id")
        .agg(F.max_by("loss", "order").alias("loss"))
        .select(
            *("store", "group", "member_id", "loss.order", "loss.ts_ms"),
            # an earlier version may have carried a lost member: its end is then on the first day
            F.greatest(F.to_date(F.timestamp_millis("loss.ts_ms")), F.lit(days[0])).alias(DAY),
        )
    )


# --- days -----------------------------------------------------------------------------------------


_LASTING: Final = (
    "member_join",
    "member_leave",
    "member_evicted",
    "assignment",
    MOVED,
    "rebalance_start",
    "rebalance_end",
    "admin_action",
)
"""The kinds of events that the computation of later days may need."""


def lives(events: DataFrame) -> DataFrame:
    """Return the events about members, rebalances and deleted topics, with their day ``dt``. The
    columns with offsets are null. Only these events are needed for ``member_sessions``,
    ``forgotten_members``, ``rebalances``, ``carried_events`` and deletions of topics.
    """
    wanted = events.where(F.col("kind").isin(*_LASTING, "shard_loaded"))
    nothing = {name: F.lit(None).cast(EVENT_SCHEMA[name].dataType) for name in _OFFSETS}
    return with_day(wanted).withColumns(nothing).select(*EVENT_SCHEMA.names, DAY)


_OFFSETS: Final = ("topics", "lost")
"""The columns of an event with the offsets of partitions."""


def carried_events(events: DataFrame, forgotten: DataFrame, days: Sequence[date]) -> DataFrame:
    """Return for each of ``days`` the events of this day or earlier that later days need. They have
    the columns of events, and the day ``dt``.

    These are the joins of current members, the last assignment of each group and partition, and the
    events of the current rebalance. Deletions of topics are carried for one day, because the
    coordinator removes the offsets soon after the deletion. The caller passes the result to
    ``with_static_names``.
    """
    told = with_day(events.where(F.col("kind").isin(*_LASTING))).withColumn("order", event_order())
    # the order is only unique within a group: two logs of a store may have events of the same order
    event = ("store", "group", "order")
    states = told.select(*event, DAY, F.explode(_states()).alias("state"))
    of_member = F.array(F.lit("member"), "group", "member_id").alias("key")
    over = F.struct(of_member, F.lit(False).alias("opens")).alias("state")
    states = states.unionByName(forgotten.select(*event, DAY, over))
    # Each day needs only the last state of each key. Spark finds the largest number without
    # sorting.
    last = states.groupBy("store", "group", "state.key", DAY).agg(
        F.max("order").alias("order"),
        F.max(F.when(F.col("state.opens"), F.col("order"))).alias("opened"),
    )
    by_key = Window.partitionBy("store", "group", "key").orderBy(DAY)
    last = last.withColumn("next_day", F.lead(DAY).over(by_key)).where("`order` = opened")
    until = F.coalesce(F.date_sub("next_day", 1), F.lit(days[-1]))
    since = F.greatest(F.col(DAY), F.lit(days[0]))
    each = last.where(since <= until).select(*event, F.explode(F.sequence(since, until)).alias(DAY))
    each = each.where(F.col(DAY).isin(*days)).distinct()
    deletions = told.where((F.col("action") == "delete_topic") & F.col(DAY).isin(*days))
    # few events are carried: with a hash of them, Spark need not sort all events
    carried = told.drop(DAY).join(each.hint("shuffle_hash"), [*event])
    carried = carried.select(*EVENT_SCHEMA.names, DAY)
    return carried.unionByName(deletions.select(*carried.columns))


def with_static_names(carried: DataFrame, events: DataFrame) -> DataFrame:
    """Replace the member ids of static members in assignments with their instance ids. Later days
    may not have the events that map a member id to its instance id.
    """
    key = ("store", "log_id", "seq", DAY)
    of_member = F.explode("partitions").alias("member_id", "topics_of_member")
    members = carried.where(F.col("kind") == "assignment").select(*key, "group", of_member)
    named = members.join(static_names(events), ["store", "group", "member_id"], "left")
    owner = F.coalesce("instance_id", "member_id").alias("owner")
    # a map cannot have a name twice, whatever the leader has written
    owners = named.groupBy(*key, owner).agg(F.first("topics_of_member").alias("topics_of_owner"))
    by_name = owners.groupBy(*key).agg(
        F.map_from_entries(F.collect_list(F.struct("owner", "topics_of_owner"))).alias("by_name")
    )
    rows = carried.join(by_name, [*key], "left")
    partitions = F.coalesce("by_name", "partitions").alias("partitions")
    names = [partitions if name == "partitions" else F.col(name) for name in EVENT_SCHEMA.names]
    return rows.select(*names, DAY)


def _states() -> Column:
    """Return a column with the states that an event begins or ends, such as the membership of one
    member. Each entry has the ``key`` of the state, and ``opens``: True if the event begins it,
    False if the event ends it.
    """

    def state(opens: bool, *key: str | Column) -> Column:
        return F.struct(F.array(*key).alias("key"), F.lit(opens).alias("opens"))

    def kind_is(*kinds: str) -> Column:
        return F.col("kind").isin(*kinds)

    group = F.col("group")
    none = F.lit(None)
    member = (F.lit("member"), group, F.col("member_id"))
    replaced = (F.lit("member"), group, F.col("replaces"))
    started, completed = (F.lit("started"), group), (F.lit("completed"), group)
    is_settled = kind_is("rebalance_end") & _is_of_consumer_group()
    is_join, replaces = kind_is("member_join"), F.col("replaces").isNotNull()
    # if no member has a partition now, its last assignment shows its last owner
    held = F.transform(_held_partitions(), lambda held: state(True, F.lit("held"), group, held))
    states = F.array_compact(
        F.array(
            F.when(is_join, state(True, *member)).otherwise(none),
            F.when(is_join & replaces, state(False, *replaced)).otherwise(none),
            F.when(kind_is("member_leave", "member_evicted"), state(False, *member)),
            F.when(kind_is("assignment"), state(True, F.lit("assignment"), group)),
            F.when(kind_is("rebalance_start"), state(True, *started)),
            F.when(kind_is("assignment") | is_settled, state(False, *started)),
            F.when(kind_is("rebalance_end") & ~is_settled, state(True, *completed)),
            F.when(kind_is("rebalance_start", "assignment"), state(False, *completed)),
        )
    )
    return F.concat(states, F.coalesce(held, F.array().cast(_STATES)))


_STATES: Final = "array<struct<key:array<string>,opens:boolean>>"


def _held_partitions() -> Column:
    """Return a column with the partitions that an event gives, each as the text "number topic"."""

    def of_topic(topic: Column) -> Column:
        return F.transform(topic["value"], lambda number: F.concat_ws(" ", number, topic["key"]))

    def of_member(topics: Column) -> Column:
        return F.flatten(F.transform(F.map_entries(topics), of_topic))

    return F.flatten(F.transform(F.map_values(given()), of_member))


def _on_each_day(
    rows: DataFrame, begins_ms: Column, ends_ms: Column, days: Sequence[date]
) -> DataFrame:
    """Repeat each row for every day between its beginning and its end."""

    first = F.greatest(day_of(begins_ms), F.lit(days[0]))
    last = F.least(F.coalesce(day_of(ends_ms), F.lit(days[-1])), F.lit(days[-1]))
    each = rows.where(first <= last).withColumn(DAY, F.explode(F.sequence(first, last)))
    return each.where(F.col(DAY).isin(*days))


def _is_of_consumer_group() -> Column:
    return F.coalesce(F.col("group_type") == CONSUMER, F.lit(False))
