"""Silver: moves of offsets, sessions of members, and rebalances, computed from events.

Every table is a function of events only. The state that a day passes to later days is also a set of
events (``carried_events``). So the same functions compute a day from its own and the carried
events, or from the whole history.

A table shows each day's state at the end of that day. A session of three days has a row on each of
them, and an end only on the last.

Long because it is a list: one function for each table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.columns import EVENT_SCHEMA
from groupkeeper.pipeline.tables.bronze import with_day
from groupkeeper.pipeline.tables.lake import DAY
from groupkeeper.pipeline.tables.offsets import event_order, offset_changes

RESTORE_CLIENT_PREFIX: Final = "groupkeeper-restore/"
"""The prefix of a restore's client id; the plan's id follows."""

TXN_OFFSET_COMMIT: Final = "TxnOffsetCommit"
"""The API of a commit within a transaction. No administrator's tool sends one."""

SKIP_MESSAGES: Final = 100_000
"""A member that moves an offset forward by at least this many messages at once has skipped them,
not consumed them.
"""

MAX_LISTED_MOVES: Final = 100
"""Moved partitions that a rebalance names; all are counted."""

_DAY_MS: Final = 24 * 60 * 60 * 1000


# --- offsets --------------------------------------------------------------------------------------


def commit_deltas(events: DataFrame, skip_messages: int = SKIP_MESSAGES) -> DataFrame:
    """Return one row for each partition of each commit, with the move of the offset and its cause.

    ``delta`` is null if there was no offset before. ``cause`` is one of:
    - ``member``, which includes commits of a transaction, even after their member has left
    - ``restore``
    - ``reset``: generation -1, from an administrator or a consumer without a group

    ``is_rewind`` is a move back, ``is_duplicate`` no move. ``is_skip`` is a move forward over
    messages that the group did not consume: a reset or restore, or ``skip_messages`` or more at
    once.
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
    """Return changes of offsets other than commits: expired, deleted, or from a snapshot."""
    return with_day(offset_changes(events.where(F.col("kind") != "commit"))).drop("api")


def end_offsets(events: DataFrame) -> DataFrame:
    """Return one row for each partition of each sample of ends."""
    topics = events.where(F.col("kind") == "end_offset").select(
        "store", "ts_ms", "lease_epoch", "seq", F.explode("topics").alias("t")
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
    """Return one row for each member and day of its session: when it joined, when and why it ended.

    ``ended_by`` is ``leave``, ``replaced`` (a static member came back under a new id), the reason
    of an eviction, or ``forgotten``. It is null while the member lives.

    A crash of the coordinator may undo an end, and the member then ends again. The day of the first
    end keeps it, and the second has no beginning.
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
    ended_by = _until_its_day("ended_ms", "ended_by")
    ended_ms = _until_its_day("ended_ms", "ended_ms")
    by_day = by_day.withColumn("ended_by", ended_by).withColumn("ended_ms", ended_ms)
    return by_day.withColumn("duration_ms", F.col("ended_ms") - F.col("joined_ms"))


_JOIN: Final = ("instance_id", "client_id", "client_host", "principal", "reason", "ts_ms")
"""The columns of a session's beginning."""


def _ends(events: DataFrame, forgotten: DataFrame) -> DataFrame:
    """Return the ends of members, one per day: the last of that day."""

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
    """Return the members that the coordinator lost in a crash, with the event that shows it.

    A member is stored with the assignment after its join. If the shard is loaded again before that
    (because the coordinator was killed or could not write), the member is gone, and no event of its
    own says so. One of these events shows it: ``shard_loaded`` under a later lease, an assignment
    without the member, or the end of a rebalance that left no member.
    """
    kind = F.col("kind")
    tells_all = (kind == "assignment") | ((kind == "rebalance_end") & (F.col("members") == 0))
    names = F.coalesce(
        F.map_keys("partitions"), F.map_keys("opaque_bytes"), F.array().cast("array<string>")
    )
    kinds = ("member_join", "assignment", "rebalance_end", "shard_loaded")
    steps = events.where(kind.isin(*kinds)).select(
        *("store", "group", "shard", "kind", "member_id", "instance_id", "replaces", "ts_ms"),
        event_order().alias("order"),
        F.when(tells_all, names).alias("names"),
    )
    # each event needs the events after it; the order is reversed, because Spark is slow at looking
    # ahead
    later = F.col("order").desc()
    of_group = Window.partitionBy("store", "group").orderBy(later)
    of_shard = Window.partitionBy("store", "shard").orderBy(later)
    told = F.when(F.col("names").isNotNull(), F.struct("order", "ts_ms", "names"))
    steps = steps.withColumn("told", F.last(told, ignorenulls=True).over(of_group))
    is_named = F.array_contains("told.names", F.col("member_id")) | F.array_contains(
        "told.names", F.col("instance_id")
    )
    steps = steps.where(kind.isin("member_join", "shard_loaded")).select(
        *("store", "group", "shard", "kind", "member_id", "replaces", "order", "ts_ms"),
        F.coalesce(is_named, F.lit(False)).alias("is_named"),
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
            # a member carried by a version that did not detect this ends on the first day
            F.greatest(F.to_date(F.timestamp_millis("loss.ts_ms")), F.lit(days[0])).alias(DAY),
        )
    )


# --- rebalances -----------------------------------------------------------------------------------


def rebalances(events: DataFrame, days: Sequence[date]) -> DataFrame:
    """Return one row for each rebalance and day on which it took a step.

    A rebalance has three steps:
    - its join phase begins: ``started_ms``, ``reason``, the member that caused it
    - its generation is complete: ``completed_ms``, ``duration_ms``, ``awaited`` (absent members)
    - its leader has assigned partitions: ``assigned_ms``

    A rebalance that the next one or a crash interrupted has no end. A day on which it only lasted
    has no row. ``moved`` counts the partitions that another member had before, ``assigned`` all of
    them; both are null if the assignment cannot be read.
    """
    group = Window.partitionBy("store", "group").orderBy("lease_epoch", "seq")
    kinds = ("rebalance_start", "rebalance_end", "assignment")
    steps = events.where(F.col("kind").isin(*kinds))
    steps = steps.withColumn("step", F.array_position(F.lit(list(kinds)), F.col("kind")))
    # the first known event of a rebalance may be its end
    begins_anew = (F.col("step") <= F.lag("step").over(group)).cast("int")
    steps = (
        steps.withColumn("begins_anew", begins_anew)
        .withColumn("episode", F.coalesce(F.sum("begins_anew").over(group), F.lit(0)))
        .withColumn("is_readable", F.col("partitions").isNotNull())
    )
    episodes = steps.groupBy("store", "group", "episode").agg(
        _first_of("rebalance_start", "lease_epoch", "seq", "ts_ms", "reason", "members", *_CAUSE),
        _first_of("rebalance_end", "ts_ms", *_COMPLETED),
        _first_of("assignment", "ts_ms", "lease_epoch", "seq", "is_readable"),
    )
    joined = episodes.join(
        _moves(events),
        on=[
            episodes["store"] == F.col("moves_store"),
            episodes["group"] == F.col("moves_group"),
            episodes["assignment.lease_epoch"] == F.col("moves_lease_epoch"),
            episodes["assignment.seq"] == F.col("moves_seq"),
        ],
        how="left",
    )
    rows = joined.select(
        "store",
        "group",
        F.col("rebalance_start.seq").alias("seq"),
        F.col("rebalance_start.ts_ms").alias("started_ms"),
        F.col("rebalance_start.reason").alias("reason"),
        *(F.col(f"rebalance_start.{name}").alias(name) for name in _CAUSE),
        F.col("rebalance_start.members").alias("members_before"),
        F.col("rebalance_end.ts_ms").alias("completed_ms"),
        *(F.col(f"rebalance_end.{name}").alias(name) for name in _COMPLETED),
        F.col("assignment.ts_ms").alias("assigned_ms"),
        *(
            F.when(F.col("assignment.is_readable"), F.coalesce(name, F.lit(0))).alias(name)
            for name in ("assigned", "moved")
        ),
        "moves",
    )
    steps_days = F.array(*(_day_of(f"{step}_ms") for step in ("started", "completed", "assigned")))
    each = rows.withColumn(DAY, F.explode(F.array_distinct(F.array_compact(steps_days))))
    by_day = each.where(F.col(DAY).isin(*days))
    return by_day.select(
        *[name for name in by_day.columns if name not in _LATER],
        *(_until_its_day("completed_ms", name).alias(name) for name in _LATER[:-4]),
        *(_until_its_day("assigned_ms", name).alias(name) for name in _LATER[-4:]),
    )


_CAUSE: Final = ("member_id", "instance_id", "client_id", "client_host")
_COMPLETED: Final = (
    "duration_ms",
    "awaited",
    "members",
    "generation",
    "protocol_name",
    "leader_id",
)
_LATER: Final = (*_COMPLETED, "completed_ms", "assigned", "moved", "moves", "assigned_ms")


def _first_of(kind: str, *fields: str) -> Column:
    """Return fields of the first event of a kind."""
    of_kind = F.col("kind") == kind
    return F.min_by(F.struct(*fields), F.when(of_kind, event_order())).alias(kind)


def _moves(events: DataFrame) -> DataFrame:
    """Return for each readable assignment how many partitions it assigns and moves, and the first
    moved ones."""
    assignments = events.where((F.col("kind") == "assignment") & F.col("partitions").isNotNull())
    of_event = ("store", "group", "lease_epoch", "seq")
    topics = assignments.select(*of_event, F.explode("partitions").alias("member_id", "of_member"))
    parts = topics.select(*of_event, "member_id", F.explode("of_member").alias("topic", "numbers"))
    held = parts.select(*of_event, "member_id", "topic", F.explode("numbers").alias("partition"))
    held = held.join(_static_names(events), ["store", "group", "member_id"], "left")
    owner = F.coalesce("instance_id", "member_id")
    before = Window.partitionBy("store", "group", "topic", "partition").orderBy(
        "lease_epoch", "seq"
    )
    held = held.withColumn("owner", owner).withColumn("had", F.lag("owner").over(before))
    has_moved = F.col("had").isNotNull() & (F.col("had") != F.col("owner"))
    move = F.struct("topic", "partition", F.col("had").alias("from"), F.col("owner").alias("to"))
    moves = held.groupBy(*of_event).agg(
        F.count("*").cast("int").alias("assigned"),
        F.count_if(has_moved).cast("int").alias("moved"),
        F.slice(F.array_sort(F.collect_list(F.when(has_moved, move))), 1, MAX_LISTED_MOVES).alias(
            "moves"
        ),
    )
    return moves.select(
        *(F.col(name).alias(f"moves_{name}") for name in of_event), "assigned", "moved", "moves"
    )


def _static_names(events: DataFrame) -> DataFrame:
    """Return the instance ids of static members, which keep them under a new member id."""
    joins = events.where((F.col("kind") == "member_join") & F.col("instance_id").isNotNull())
    return joins.select("store", "group", "member_id", "instance_id").distinct()


# --- days -----------------------------------------------------------------------------------------


_LASTING: Final = (
    "member_join",
    "member_leave",
    "member_evicted",
    "assignment",
    "rebalance_start",
    "rebalance_end",
    "admin_action",
)
"""Kinds of events with a lasting effect."""


def carried_events(events: DataFrame, forgotten: DataFrame, days: Sequence[date]) -> DataFrame:
    """Return the events that later days need, for the end of each day, in the events' own columns.

    These are the joins of current members, the last assignment of each group and partition, and the
    current rebalance. Deletions of topics are kept for one day, since their offsets are removed
    soon after.
    """
    told = with_day(events.where(F.col("kind").isin(*_LASTING))).withColumn("order", event_order())
    states = told.select("store", "order", DAY, F.explode(_states()).alias("state"))
    of_member = F.array(F.lit("member"), "group", "member_id").alias("key")
    over = F.struct(of_member, F.lit(False).alias("opens")).alias("state")
    states = states.unionByName(forgotten.select("store", "order", DAY, over))
    # each day needs only the last state: rows without content, one per key and day, are sorted
    last = states.groupBy("store", "state.key", DAY).agg(
        F.max("order").alias("order"), F.max_by("state.opens", "order").alias("opens")
    )
    by_key = Window.partitionBy("store", "key").orderBy(DAY)
    last = last.withColumn("next_day", F.lead(DAY).over(by_key)).where("opens")
    until = F.coalesce(F.date_sub("next_day", 1), F.lit(days[-1]))
    since = F.greatest(F.col(DAY), F.lit(days[0]))
    each = last.where(since <= until).select(
        "store", "order", F.explode(F.sequence(since, until)).alias(DAY)
    )
    deletions = told.where(F.col("action") == "delete_topic").select("store", "order", DAY)
    each = each.unionByName(deletions).where(F.col(DAY).isin(*days)).distinct()
    carried = told.drop(DAY).join(each, ["store", "order"])
    return _with_static_names(carried.select(*EVENT_SCHEMA.names, "store", DAY), events)


def _with_static_names(carried: DataFrame, events: DataFrame) -> DataFrame:
    """Replace the member ids in assignments by static names; the ids may be unknown later."""
    key = ("store", "log_id", "seq", DAY)
    of_member = F.explode("partitions").alias("member_id", "topics_of_member")
    members = carried.where(F.col("kind") == "assignment").select(*key, "group", of_member)
    named = members.join(_static_names(events), ["store", "group", "member_id"], "left")
    owner = F.coalesce("instance_id", "member_id").alias("owner")
    # a map cannot have a name twice, whatever the leader has written
    owners = named.groupBy(*key, owner).agg(F.first("topics_of_member").alias("topics_of_owner"))
    by_name = owners.groupBy(*key).agg(
        F.map_from_entries(F.collect_list(F.struct("owner", "topics_of_owner"))).alias("by_name")
    )
    rows = carried.join(by_name, [*key], "left")
    partitions = F.coalesce("by_name", "partitions").alias("partitions")
    names = [partitions if name == "partitions" else F.col(name) for name in EVENT_SCHEMA.names]
    return rows.select(*names, "store", DAY)


def _states() -> Column:
    """Return the keys that an event has a lasting effect on, and whether it opens or closes
    them.
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
    is_join, replaces = kind_is("member_join"), F.col("replaces").isNotNull()
    # the last assignment that has a partition shows the owner, if nobody has it now
    held = F.transform(_held_partitions(), lambda held: state(True, F.lit("held"), group, held))
    states = F.array_compact(
        F.array(
            F.when(is_join, state(True, *member)).otherwise(none),
            F.when(is_join & replaces, state(False, *replaced)).otherwise(none),
            F.when(kind_is("member_leave", "member_evicted"), state(False, *member)),
            F.when(kind_is("assignment"), state(True, F.lit("assignment"), group)),
            F.when(kind_is("rebalance_start"), state(True, *started)),
            F.when(kind_is("assignment"), state(False, *started)),
            F.when(kind_is("rebalance_end"), state(True, *completed)),
            F.when(kind_is("rebalance_start", "assignment"), state(False, *completed)),
        )
    )
    return F.concat(states, F.coalesce(held, F.array().cast(_STATES)))


_STATES: Final = "array<struct<key:array<string>,opens:boolean>>"


def _held_partitions() -> Column:
    """Return the partitions of an assignment, each as one word."""

    def of_topic(topic: Column) -> Column:
        return F.transform(topic["value"], lambda number: F.concat_ws(" ", number, topic["key"]))

    def of_member(topics: Column) -> Column:
        return F.flatten(F.transform(F.map_entries(topics), of_topic))

    return F.flatten(F.transform(F.map_values("partitions"), of_member))


def _on_each_day(
    rows: DataFrame, begins_ms: Column, ends_ms: Column, days: Sequence[date]
) -> DataFrame:
    """Repeat each row for every day that it extends into."""

    first = F.greatest(_day_of(begins_ms), F.lit(days[0]))
    last = F.least(F.coalesce(_day_of(ends_ms), F.lit(days[-1])), F.lit(days[-1]))
    each = rows.where(first <= last).withColumn(DAY, F.explode(F.sequence(first, last)))
    return each.where(F.col(DAY).isin(*days))


def _day_of(at_ms: Column | str) -> Column:
    return F.to_date(F.timestamp_millis(at_ms))


def _until_its_day(at_ms: str, column: str) -> Column:
    """Return a column as known at the end of the row's day: null if it happened later."""
    end_ms = (F.unix_date(F.col(DAY)).cast("long") + 1) * _DAY_MS
    return F.when(F.col(at_ms) < end_ms, F.col(column))
