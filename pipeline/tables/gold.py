"""Gold: the small tables for reports, partitioned by day.

They are computed from silver (facts about groups) and from events only. Distances are in messages:
the difference of two offsets counts as the number of messages between them. For compacted or
transactional topics this is too high.

Everything about commits is computed from one table of sums, ``minutes``. The sums of several
batches can be added. So the cost of a new batch depends on the number of its own events, not on the
number of events of its day. A day that only got new events since it was computed is called grown.

This file is long because it is a list: one function for each table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from groupkeeper.pipeline.tables.bronze import with_day
from groupkeeper.pipeline.tables.hours import of_hour
from groupkeeper.pipeline.tables.lake import DAY
from groupkeeper.pipeline.tables.offsets import (
    OFFSET_KEY,
    event_order,
    last_changes,
    order_columns,
)

MINUTE_MS: Final = 60_000

PARTITION_KEY: Final = ("store", "topic", "partition")


_SUMS: Final = (
    "requests",
    "resets",
    "commits",
    "partitions",
    "messages",
    "rewinds",
    "skips",
    "duplicates",
)
"""The columns of ``minutes`` that are sums."""


def minutes(deltas: DataFrame, other_changes: DataFrame) -> DataFrame:
    """Return one row for each committed offset and each minute in which it changed.

    A row has sums over the commits of this minute. It also has the last change: its place in the
    order of events (``order``), ``offset``, and ``is_set``, which is False if the offset was
    removed. A request counts in ``requests`` once, in the row of its first partition. It counts in
    ``commits`` once for each topic, in the row of the topic's first partition.
    """
    by_member = (F.col("cause") == "member") & (F.col("delta") > 0)
    is_first = F.col("position") == 0
    counted = {
        "requests": is_first,
        "resets": is_first & (F.col("cause") != "member"),
        "commits": F.col("position") % (1 << 31) == 0,
        "partitions": F.lit(True),
        "rewinds": F.col("is_rewind"),
        "skips": F.col("is_skip"),
        "duplicates": F.col("is_duplicate"),
    }
    commits = deltas.select(
        *(*OFFSET_KEY, DAY, minute(), event_order().alias("order"), "offset"),
        F.lit(True).alias("is_set"),
        *(condition.cast("long").alias(name) for name, condition in counted.items()),
        F.when(by_member, F.col("delta")).otherwise(0).alias("messages"),
    )
    others = other_changes.select(
        *(*OFFSET_KEY, DAY, minute(), event_order().alias("order"), "offset", "is_set"),
        *(F.lit(0).cast("long").alias(name) for name in _SUMS),
    )
    return added_minutes(commits.unionByName(others))


def added_minutes(rows: DataFrame) -> DataFrame:
    """Combine the rows of ``minutes`` that have the same offset and minute."""
    return rows.groupBy(*OFFSET_KEY, DAY, "minute_ms").agg(
        F.max("order").alias("order"),
        *(F.max_by(name, "order").alias(name) for name in ("offset", "is_set")),
        *(F.sum(name).alias(name) for name in _SUMS),
    )


def hours(minutes: DataFrame) -> DataFrame:
    """Combine the rows of ``minutes`` that have the same offset and hour. ``minute_ms`` is the
    beginning of the hour.
    """
    return added_minutes(minutes.withColumn("minute_ms", of_hour(F.col("minute_ms"))))


def all_hours(hours: DataFrame) -> DataFrame:
    """Combine the rows of ``hours`` that have the same offset and day. ``minute_ms`` is the
    beginning of the day.
    """
    day_ms = F.unix_date(DAY).cast("long") * F.lit(24 * 60 * MINUTE_MS)
    return added_minutes(hours.withColumn("minute_ms", day_ms))


def newest_by_day(minutes: DataFrame) -> DataFrame:
    """Return the last change of each offset on each day: its ``order``, and ``is_set`` (False if
    the offset was removed).

    The caller writes the result and reads it back, so that Spark knows that the table is small.
    """
    last = (F.max("order").alias("order"), F.max_by("is_set", "order").alias("is_set"))
    return minutes.groupBy(*OFFSET_KEY, DAY).agg(*last)


def offsets_by_day(
    changes: DataFrame,
    newest: DataFrame,
    known: DataFrame,
    standing: DataFrame,
    days: Sequence[date],
) -> DataFrame:
    """Return the committed offsets at the end of each of the days.

    - ``changes``: the new changes (``all_changes``).
    - ``newest``: the last change of each offset on each day, new or not (``newest_by_day``).
    - ``known``: the earlier result of this function for these days, without the new changes. May be
      empty.
    - ``standing``: the offsets at the end of the day before the first one. May be empty.
    """
    key = (*OFFSET_KEY, DAY)
    are_set = newest.where("is_set").drop("is_set")
    steps = last_changes(changes.where("is_set"), *key, newest=are_set)
    before = known.withColumn("order", event_order()).join(are_set, [*key, "order"], "left_semi")
    removed = newest.where("not is_set").select(*key, "is_set", *order_columns())
    steps = steps.unionByName(before.select(*steps.columns))
    steps = steps.unionByName(removed, allowMissingColumns=True)
    return _by_day(steps, standing, OFFSET_KEY, days).where("is_set")


def ends_by_day(
    samples: DataFrame, known: DataFrame, before: DataFrame, days: Sequence[date]
) -> DataFrame:
    """Return the last known end of each partition at the end of each of the days.

    ``samples`` has the new samples. ``known`` has the earlier result of this function for these
    days, without the new samples. ``before`` has the ends of the day before the first one.
    """
    names = ("offset", "ts_ms", "lease_epoch", "seq")
    both = samples.select(*PARTITION_KEY, DAY, *names)
    both = both.unionByName(known.select(*both.columns))
    last = F.max_by(F.struct(*names), event_order()).alias("last")
    steps = both.groupBy(*PARTITION_KEY, DAY).agg(last).select(*PARTITION_KEY, DAY, "last.*")
    return _by_day(steps, before, PARTITION_KEY, days)


def sampled_minutes(samples: DataFrame) -> DataFrame:
    """Return the last sample of each partition and minute. ``order`` is its place in the order of
    events.
    """
    order = event_order().alias("order")
    return added_samples(samples.select(*PARTITION_KEY, DAY, minute(), order, "offset"))


def added_samples(rows: DataFrame) -> DataFrame:
    """Combine the rows of ``sampled_minutes`` that have the same partition and minute."""
    last = (F.max("order").alias("order"), F.max_by("offset", "order").alias("offset"))
    return rows.groupBy(*PARTITION_KEY, DAY, "minute_ms").agg(*last)


def sampled_hours(minutes: DataFrame) -> DataFrame:
    """Return the row of the last minute of each partition and hour."""
    last = (F.max_by(name, "minute_ms").alias(name) for name in ("order", "offset"))
    hour = of_hour(F.col("minute_ms")).alias("hour")
    by_hour = minutes.groupBy(*PARTITION_KEY, DAY, hour)
    return by_hour.agg(F.max("minute_ms").alias("minute_ms"), *last).drop("hour")


def _by_day(
    steps: DataFrame, before: DataFrame, key: Sequence[str], days: Sequence[date]
) -> DataFrame:
    """Repeat each row for every day until the day of the next row with the same key.

    ``steps`` has the last value of a key on each day on which the value changed. ``before`` has the
    values at the end of the day before the first day.
    """
    earlier = before.select(*steps.columns).withColumn(DAY, F.date_sub(F.lit(days[0]), 1))
    steps = steps.unionByName(earlier).withColumn("order", event_order())
    steps = without_overtaken(steps, key, DAY)
    order = Window.partitionBy(*key).orderBy(DAY)
    steps = steps.withColumn("next_day", F.lead(DAY).over(order))
    until = F.coalesce(F.date_sub("next_day", 1), F.lit(days[-1]))
    since = F.greatest(F.col(DAY), F.lit(days[0]))
    each = steps.where(since <= until).withColumn(DAY, F.explode(F.sequence(since, until)))
    return each.where(F.col(DAY).isin(*days)).drop("next_day")


def without_overtaken(steps: DataFrame, key: Sequence[str], at: str) -> DataFrame:
    """Drop each row that has a later time (``at``) but a lower ``order`` than another row of its
    key. Such rows exist if the clock was set back. The column ``order`` is dropped too.
    """
    earlier = Window.partitionBy(*key).orderBy(at).rowsBetween(Window.unboundedPreceding, -1)
    newest = F.max("order").over(earlier)
    known = steps.withColumn("newest", newest)
    return known.where("newest is null or `order` > newest").drop("newest", "order")


def all_changes(commit_deltas: DataFrame, other_changes: DataFrame) -> DataFrame:
    """Return the rows of both tables in one table, with the columns that both have. So the result
    is like that of ``offsets.offset_changes``.
    """
    commits = commit_deltas.withColumn("is_set", F.lit(True))
    names = [name for name in other_changes.columns if name in commits.columns]
    return commits.select(*names).unionByName(other_changes.select(*names))


def commit_rate_1m(minutes: DataFrame) -> DataFrame:
    """Return the sums over the commits of each group and topic in each minute.

    ``messages`` counts only members' moves forward. Resets, restores and rewinds are counted
    separately.
    """
    names = [name for name in _SUMS if name not in ("requests", "resets")]
    key = (DAY, "store", "group", "topic", "minute_ms")
    return minutes.where(_HAS_COMMITS).groupBy(*key).agg(*_sums(*names))


_HAS_COMMITS: Final = "partitions > 0"


def _sums(*names: str) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]


def rebalances(episodes: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return silver's rebalances with three more columns.

    - ``caused_by``: the client of the member that caused the rebalance
    - ``cause``: a key of ``CAUSES``, or ``other``
    - ``awaited_names``: the clients of the awaited members

    A client is named ``client-id (host)``.
    """
    name = F.concat("client_id", F.lit(" ("), "client_host", F.lit(")"))
    # a member may have two sessions, and only one of them has the client
    members = sessions.groupBy(DAY, "store", "group", "member_id").agg(F.max(name).alias("name"))
    # two rebalances may begin in the same millisecond, and one with an unknown beginning has no seq
    row = (DAY, "store", "group", "seq", "started_ms", "completed_ms")
    waited = episodes.select(*row, F.explode("awaited").alias("member_id"))
    names = waited.join(members, [DAY, "store", "group", "member_id"], "left").groupBy(*row)
    awaited = names.agg(
        F.array_sort(F.collect_list(F.coalesce("name", "member_id"))).alias("awaited_names")
    )
    causes = members.withColumnRenamed("name", "caused_by")
    named = episodes.join(causes, [DAY, "store", "group", "member_id"], "left")
    same_row = [F.col(f"e.{n}").eqNullSafe(F.col(f"a.{n}")) for n in row]
    joined = named.alias("e").join(awaited.alias("a"), same_row, "left")
    return joined.select("e.*", _cause().alias("cause"), "a.awaited_names")


CAUSES: Final = {
    "join": ("member_join", "static_member_rejoin"),
    "leave": ("member_leave",),
    "timeout": (
        "session_timeout",
        "join_timeout",
        "sync_timeout",
        "rebalance_timeout",
        "new_member_timeout",
    ),
    "change": ("member_changed", "leader_rejoin", "subscription_changed"),
    "topics": ("topics_changed", "pattern_resolved"),
    "downgrade": ("downgrade",),
    "full": ("group_max_size",),
}
"""Maps each cause of a rebalance to its reasons, as the event ``rebalance_start`` names them."""


def _cause() -> Column:
    cause = F.lit("other")
    for word, reasons in CAUSES.items():
        cause = F.when(F.col("e.reason").isin(*reasons), word).otherwise(cause)
    return cause


def group_daily(
    minutes: DataFrame,
    sessions: DataFrame,
    episodes: DataFrame,
    lag: DataFrame,
    audit: DataFrame,
) -> DataFrame:
    """Return one row for each group and day, with numbers about its commits, members and
    rebalances.

    All arguments cover the same days. Of ``minutes`` and ``lag``, rows of the same hour may be
    combined (``hours`` and ``peaks``). ``members`` is the number at the end of the day.
    ``max_partition_lag`` is the largest lag of one partition.
    """
    key = (DAY, "store", "group")
    rejected = audit.where("action = 'rejected'")
    parts = [
        minutes.where(_HAS_COMMITS)
        .groupBy(*key)
        .agg(F.sum("requests").alias("commits"), *_sums("resets", *_SUMS[3:])),
        rejected.groupBy(*key).agg(F.sum("count").alias("rejected")),
        sessions.groupBy(*key).agg(
            F.count_if(_is_today("joined_ms")).alias("joined"),
            F.count_if(_is_today("ended_ms") & F.col("ended_by").isin("leave", "replaced")).alias(
                "left"
            ),
            F.count_if(
                _is_today("ended_ms") & ~F.col("ended_by").isin("leave", "replaced", "forgotten")
            ).alias("evicted"),
            F.count_if(_is_today("ended_ms") & (F.col("ended_by") == "forgotten")).alias(
                "forgotten"
            ),
            F.count_if(F.col("ended_ms").isNull()).alias("members"),
        ),
        episodes.groupBy(*key).agg(
            F.count_if(_is_today("started_ms")).alias("rebalances"),
            F.sum(F.when(_is_today("completed_ms"), F.col("duration_ms"))).alias("rebalance_ms"),
            F.sum("moved").alias("moved"),
        ),
        lag.groupBy(*key).agg(F.max("lag").alias("max_partition_lag")),
    ]
    united = parts[0]
    for part in parts[1:]:
        united = united.unionByName(part, allowMissingColumns=True)
    counts = [name for name in united.columns if name not in (*key, "max_partition_lag")]
    return united.groupBy(*key).agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counts),
        F.max("max_partition_lag").alias("max_partition_lag"),
    )


def peaks(lag: DataFrame) -> DataFrame:
    """Return the largest lag of each group and hour. ``minute_ms`` is the beginning of the hour.
    ``lag`` is null if the lag was never known.
    """
    hour = of_hour(F.col("minute_ms")).alias("minute_ms")
    return lag.groupBy(DAY, "store", "group", hour).agg(F.max("lag").alias("lag"))


def _is_today(at_ms: str) -> Column:
    return F.coalesce(F.to_date(F.timestamp_millis(at_ms)) == F.col(DAY), F.lit(False))


MAX_LISTED_CHANGES: Final = 100
"""The largest number of partitions whose change an audit row lists. The row counts all of them."""

_CLIENT: Final = ("principal", "client_id", "client_host")
_WHO: Final = (*_CLIENT, "member_id", "generation")
_AUDIT_KEY: Final = (DAY, "store", "log_id", "seq", "ts_ms", "group", *_WHO)


def audit(
    deltas: DataFrame,
    other_changes: DataFrame,
    events: DataFrame,
    known: DataFrame,
    days: Sequence[date],
) -> DataFrame:
    """Return each change of offsets that is not normal consumption, and each refused commit.

    ``action`` is one of:
    - ``rewind``: a member moved an offset back
    - ``reset``, ``restore``, ``delete``, ``expire``, ``group_delete``
    - ``rejected``: a refused commit. ``count`` is the number of consecutive refusals of one member
    - ``admin``: any other change by an administrator

    ``changes`` has the offsets before and after. Null means that there was or is no offset.
    ``messages_back`` and ``messages_forward`` count the messages in each direction, and
    ``messages`` is forward minus back.

    If offsets were removed with their topic, the row names the client that deleted the topic.
    ``known`` must have the events of such deletions: those of ``days``, and those carried into the
    first day.
    """
    moved = deltas.where(F.col("is_rewind") | (F.col("cause") != "member")).select(
        *_AUDIT_KEY,
        F.when(F.col("cause") == "member", "rewind").otherwise(F.col("cause")).alias("action"),
        F.lit("").alias("detail"),
        _change(F.when(F.col("previous_offset") >= 0, F.col("previous_offset")), F.col("offset")),
        "delta",
    )
    gone = _with_deleter(other_changes.where(~F.col("is_set")), known, days).select(
        *_AUDIT_KEY,
        F.when(F.col("kind") == "offset_expired", "expire").otherwise("delete").alias("action"),
        F.coalesce("reason", F.lit("")).alias("detail"),
        _change(F.col("offset"), F.lit(None).cast("long")),
        F.lit(None).cast("long").alias("delta"),
    )
    nothing = F.when(F.col("delta").isNotNull(), 0)
    requests = (
        moved.unionByName(gone)
        .groupBy(*_AUDIT_KEY, "action", "detail")
        .agg(
            F.count("*").alias("partitions"),
            F.sum("delta").alias("messages"),
            F.sum(F.when(F.col("delta") < 0, -F.col("delta")).otherwise(nothing)).alias(
                "messages_back"
            ),
            F.sum(F.when(F.col("delta") > 0, F.col("delta")).otherwise(nothing)).alias(
                "messages_forward"
            ),
            F.slice(F.array_sort(F.collect_list("change")), 1, MAX_LISTED_CHANGES).alias("changes"),
        )
        .withColumn("count", F.lit(1).cast("long"))
    )
    return requests.unionByName(_told(events), allowMissingColumns=True)


_TOPIC_DELETED: Final = "topic_deleted"
"""The reason of an ``offset_deleted`` event if the topic was deleted."""


def added_audit(before: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the audit of days that have grown: the rows of ``before``, and the new ``rows``.

    A newly read deletion of a topic may change earlier rows. So rows about deleted topics are taken
    from ``rows`` only, which must have all of them, computed again (``of_deleted_topics``).
    """
    may_change = "action in ('delete', 'expire') and detail = '" + _TOPIC_DELETED + "'"
    return rows.unionByName(before.where(f"not ({may_change})").select(*rows.columns))


def of_deleted_topics(other_changes: DataFrame) -> DataFrame:
    """Return the changes that removed an offset because its topic was deleted.

    Another event names the client that deleted the topic. A later run may read that event.
    """
    return other_changes.where(F.col("reason") == _TOPIC_DELETED)


def _with_deleter(gone: DataFrame, known: DataFrame, days: Sequence[date]) -> DataFrame:
    """For offsets that were removed with their topic, set the columns of the client to the client
    that deleted the topic.

    The coordinator removes the offsets soon after the topic was deleted, in an event that names no
    client. The deletion of the topic is searched on the same day and on the last earlier day with
    events.
    """
    deleter = F.struct("ts_ms", "seq", "log_id", *_CLIENT)
    is_deletion = (F.col("kind") == "admin_action") & (F.col("action") == "delete_topic")
    following = F.create_map(*(F.lit(day) for pair in pairwise(days) for day in pair))
    following = following[F.col(DAY)] if len(days) > 1 else F.lit(None)
    both = F.array_compact(F.array(DAY, following))
    counts_on = F.when(F.col(DAY) < days[0], F.array(F.lit(days[0]))).otherwise(both)
    told = with_day(known.where(is_deletion)).withColumn(DAY, F.explode(counts_on))
    deletions = told.groupBy(DAY, "store", F.col("target").alias("topic"))
    named = gone.join(
        deletions.agg(F.collect_list(deleter).alias("deletions")), [DAY, "store", "topic"], "left"
    )
    by = F.when(F.col("reason") == _TOPIC_DELETED, F.array_max(F.filter("deletions", _is_before)))
    named = named.withColumn("by", by)
    return named.withColumns({name: F.coalesce(f"by.{name}", name) for name in _CLIENT})


def _is_before(deletion: Column) -> Column:
    """Return a column that is true if a deletion of a topic came before the event of this row.
    Within one log, the seqs decide. Logs of different shards or nodes count their seqs separately,
    so there the times decide.
    """
    is_same_log = deletion["log_id"] == F.col("log_id")
    earlier = deletion["ts_ms"] <= F.col("ts_ms")
    return F.when(is_same_log, deletion["seq"] < F.col("seq")).otherwise(earlier)


def _change(before: Column, after: Column) -> Column:
    return F.struct("topic", "partition", before.alias("from"), after.alias("to")).alias("change")


def _told(events: DataFrame) -> DataFrame:
    """Return the audit rows of refused commits, deleted groups and actions of administrators. Each
    such event has one row.
    """
    actions = {
        "commit_rejected": "rejected",
        "group_deleted": "group_delete",
        "admin_action": "admin",
    }
    action = F.create_map(*(F.lit(word) for pair in actions.items() for word in pair))
    admin = F.concat_ws(" ", "action", "target", "detail")
    kind = F.col("kind")
    detail = F.when(kind == "commit_rejected", F.col("error")).when(
        kind == "group_deleted", F.col("reason")
    )
    return with_day(events.where(kind.isin(*actions))).select(
        *_AUDIT_KEY,
        action[kind].alias("action"),
        detail.otherwise(admin).alias("detail"),
        F.coalesce("count", F.lit(1)).alias("count"),
    )


def minute() -> Column:
    """Return the column ``minute_ms``: the beginning of the minute of an event."""
    return (F.col("ts_ms") - F.col("ts_ms") % MINUTE_MS).alias("minute_ms")
