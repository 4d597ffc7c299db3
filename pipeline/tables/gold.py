"""Gold: the small tables for reports, partitioned by day, for complete days only.

They are functions of silver's tables and of events. Distances are counted in messages: the
difference of two offsets is the number of messages between them, unless the topic is compacted or
transactional.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from groupkeeper.pipeline.tables.bronze import with_day
from groupkeeper.pipeline.tables.lake import DAY
from groupkeeper.pipeline.tables.offsets import OFFSET_KEY, event_order, last_changes, newest_events

MINUTE_MS: Final = 60_000

PARTITION_KEY: Final = ("store", "topic", "partition")


def offsets_by_day(
    changes: DataFrame, newest: DataFrame, standing: DataFrame, days: Sequence[date]
) -> DataFrame:
    """Return the committed offsets at the end of each of the days.

    ``changes`` are those of these days (``all_changes``), and ``newest`` the last event of each
    offset and day (``newest_by_day``). ``standing`` is this function's result for the day before
    them, or empty.
    """
    steps = last_changes(changes, *OFFSET_KEY, DAY, newest=newest)
    return _by_day(steps, standing, OFFSET_KEY, days).where("is_set")


def newest_by_day(changes: DataFrame) -> DataFrame:
    """Return the ``order`` of the last event that changed an offset, for each day with a change.

    It is computed once, since several steps need it and there may be millions of changes.
    """
    return newest_events(changes, *OFFSET_KEY, DAY)


def ends_by_day(samples: DataFrame, known: DataFrame, days: Sequence[date]) -> DataFrame:
    """Return the ends known at the end of each of the days; see ``offsets_by_day``."""
    value = F.struct("offset", "ts_ms", "lease_epoch", "seq")
    steps = samples.groupBy(*PARTITION_KEY, DAY).agg(F.max_by(value, event_order()).alias("last"))
    return _by_day(steps.select(*PARTITION_KEY, DAY, "last.*"), known, PARTITION_KEY, days)


def _by_day(
    steps: DataFrame, before: DataFrame, key: Sequence[str], days: Sequence[date]
) -> DataFrame:
    """Repeat each step for every day until the next step of its key; ``before`` precedes all."""
    earlier = before.select(*steps.columns).withColumn(DAY, F.date_sub(F.lit(days[0]), 1))
    steps = steps.unionByName(earlier).withColumn("order", event_order())
    steps = _without_overtaken(steps, key, DAY)
    order = Window.partitionBy(*key).orderBy(DAY)
    steps = steps.withColumn("next_day", F.lead(DAY).over(order))
    until = F.coalesce(F.date_sub("next_day", 1), F.lit(days[-1]))
    since = F.greatest(F.col(DAY), F.lit(days[0]))
    each = steps.where(since <= until).withColumn(DAY, F.explode(F.sequence(since, until)))
    return each.where(F.col(DAY).isin(*days)).drop("next_day")


def _without_overtaken(steps: DataFrame, key: Sequence[str], at: str) -> DataFrame:
    """Drop each step that has a later time than a newer step: the clock was set back between them.

    The column ``order`` is dropped too.
    """
    earlier = Window.partitionBy(*key).orderBy(at).rowsBetween(Window.unboundedPreceding, -1)
    newest = F.max("order").over(earlier)
    known = steps.withColumn("newest", newest)
    return known.where("newest is null or `order` > newest").drop("newest", "order")


def all_changes(commit_deltas: DataFrame, other_changes: DataFrame) -> DataFrame:
    """Return committed and removed offsets in one frame, like ``offsets.offset_changes``."""
    commits = commit_deltas.withColumn("is_set", F.lit(True))
    names = [name for name in other_changes.columns if name in commits.columns]
    return commits.select(*names).unionByName(other_changes.select(*names))


def lag_1m(
    changes: DataFrame,
    newest: DataFrame,
    standing: DataFrame,
    samples: DataFrame,
    known_ends: DataFrame,
    days: Sequence[date],
) -> DataFrame:
    """Return the lag of each committed offset for each minute in which it or its end changed.

    Each offset also has a row for the first minute of each day, and a last row with a null
    ``offset`` when it was deleted or expired.

    ``lag`` is the last known end minus the offset at the end of the minute, at least 0. It is null
    if no end is known, and for a negative offset. A group that commits nothing has a row for each
    sample of its ends, since its lag grows then.

    ``changes``, ``newest`` (``newest_by_day``) and ``samples`` (``silver.end_offsets``) are those
    of the days. ``standing`` and ``known_ends`` are the offsets and ends at the end of the day
    before them.
    """
    ends = (
        samples.select(*PARTITION_KEY, _minute(), "offset", event_order().alias("order"))
        .groupBy(*PARTITION_KEY, "minute_ms")
        .agg(F.max_by("offset", "order").alias("end_offset"))
    )
    long_ago = F.lit(0).cast("long").alias("minute_ms")
    ends = ends.unionByName(
        known_ends.select(*PARTITION_KEY, long_ago, F.col("offset").alias("end_offset"))
    )
    # -1 is Kafka's value for no offset
    value = F.when(F.col("is_set"), F.col("offset")).otherwise(_NO_OFFSET).alias("offset")
    moves = (
        changes.select(*OFFSET_KEY, _minute(), value, event_order().alias("order"))
        .groupBy(*OFFSET_KEY, "minute_ms")
        .agg(F.max_by("offset", "order").alias("offset"), F.max("order").alias("order"))
    )
    stood = standing.select(*OFFSET_KEY, long_ago, "offset", event_order().alias("order"))
    moves = _without_overtaken(moves.unionByName(stood), OFFSET_KEY, "minute_ms")
    keys = newest.select(*OFFSET_KEY).union(standing.select(*OFFSET_KEY)).distinct()
    rows = moves.unionByName(keys.join(ends, [*PARTITION_KEY]), allowMissingColumns=True)
    # so each day is complete, and no reader needs the last row of the day before
    midnights = F.array(*(F.lit(_midnight_ms(day)).cast("long") for day in days))
    looks = keys.select(*OFFSET_KEY, F.explode(midnights).alias("minute_ms"))
    rows = rows.unionByName(looks, allowMissingColumns=True)
    # one minute may have several rows; each sees all of them, and the last one is kept
    so_far = Window.partitionBy(*OFFSET_KEY).orderBy("minute_ms")
    moved_ms = F.when(F.col("offset").isNotNull(), F.col("minute_ms"))
    minutes = rows.select(
        *OFFSET_KEY,
        "minute_ms",
        F.last("offset", ignorenulls=True).over(so_far).alias("offset"),
        F.last("end_offset", ignorenulls=True).over(so_far).alias("end_offset"),
        F.last(moved_ms, ignorenulls=True).over(so_far).alias("moved_ms"),
        F.lead("minute_ms").over(so_far).eqNullSafe(F.col("minute_ms")).alias("is_followed"),
    )
    known = minutes.where(~F.col("is_followed")).drop("is_followed")
    known = known.withColumn(DAY, F.to_date(F.timestamp_millis("minute_ms")))
    is_there = F.col("offset") != _NO_OFFSET
    has_gone = F.col("moved_ms") == F.col("minute_ms")
    in_days = known.where(F.col(DAY).isin(*days) & (is_there | has_gone)).drop("moved_ms")
    # greatest ignores nulls
    lag = F.greatest(F.col("end_offset") - F.col("offset"), F.lit(0))
    is_known = F.col("end_offset").isNotNull() & (F.col("offset") >= 0)
    return in_days.withColumns(
        {"offset": F.when(is_there, F.col("offset")), "lag": F.when(is_known, lag)}
    )


def _midnight_ms(day: date) -> int:
    return (day - date(1970, 1, 1)).days * 24 * 60 * MINUTE_MS


_NO_OFFSET: Final = -1


def commit_rate_1m(deltas: DataFrame) -> DataFrame:
    """Return the commits of each group and topic per minute: requests, partitions, messages.

    ``messages`` counts only forward moves of members. Resets, restores and rewinds are counted
    separately.
    """
    is_first_of_topic = F.col("position") % (1 << 31) == 0
    return deltas.groupBy(DAY, "store", "group", "topic", _minute()).agg(
        F.count_if(is_first_of_topic).alias("commits"), *_moved()
    )


def rebalances(episodes: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return silver's rebalances with the names of the client that caused each one and of the
    awaited clients.

    ``cause`` is a word of ``CAUSES``, or ``other``. A member is named ``client-id (host)``.
    """
    name = F.concat("client_id", F.lit(" ("), "client_host", F.lit(")")).alias("name")
    members = sessions.select(DAY, "store", "group", "member_id", name).dropDuplicates(
        [DAY, "store", "group", "member_id"]
    )
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
    "timeout": ("session_timeout", "join_timeout", "sync_timeout", "new_member_timeout"),
    "change": ("member_changed", "leader_rejoin"),
    "full": ("group_max_size",),
}
"""Causes of a rebalance: the reasons of ``rebalance_start`` for each word."""


def _cause() -> Column:
    cause = F.lit("other")
    for word, reasons in CAUSES.items():
        cause = F.when(F.col("e.reason").isin(*reasons), word).otherwise(cause)
    return cause


def group_daily(
    deltas: DataFrame,
    sessions: DataFrame,
    episodes: DataFrame,
    lag: DataFrame,
    events: DataFrame,
) -> DataFrame:
    """Return one row for each group and day: its commits, members, and rebalances.

    All frames are of the same days. ``members`` is the number at the end of the day;
    ``max_partition_lag`` is the largest lag of one partition.
    """
    key = (DAY, "store", "group")
    rejected = with_day(events).where(F.col("kind") == "commit_rejected")
    parts = [
        deltas.groupBy(*key).agg(
            F.count_if(F.col("position") == 0).alias("commits"),
            *_moved(),
            F.count_if((F.col("position") == 0) & (F.col("cause") != "member")).alias("resets"),
        ),
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


def _is_today(at_ms: str) -> Column:
    return F.coalesce(F.to_date(F.timestamp_millis(at_ms)) == F.col(DAY), F.lit(False))


def _moved() -> list[Column]:
    """Return the sums over commits."""
    by_member = (F.col("cause") == "member") & (F.col("delta") > 0)
    return [
        F.count("*").alias("partitions"),
        F.coalesce(F.sum(F.when(by_member, F.col("delta"))), F.lit(0)).alias("messages"),
        F.count_if("is_rewind").alias("rewinds"),
        F.count_if("is_skip").alias("skips"),
        F.count_if("is_duplicate").alias("duplicates"),
    ]


MAX_LISTED_CHANGES: Final = 100
"""Partitions whose change an audit row names; all are counted."""

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
    - ``rejected``: a zombie's commit; ``count`` refusals of one member in a row
    - ``admin``

    ``changes`` has the offsets before and after (null: removed). ``messages_back`` and
    ``messages_forward`` count the messages in either direction; ``messages`` is the second minus
    the first. If offsets were removed with their topic, the row names who deleted the topic.
    ``known`` has those deletions: events of the days, and those carried into them.
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


def _with_deleter(gone: DataFrame, known: DataFrame, days: Sequence[date]) -> DataFrame:
    """Add the client that deleted the topic to the offsets that were removed with it.

    The coordinator removes the offsets soon after the deletion, and its event names no client. The
    deletion is on the same day, or on the last earlier day with events.
    """
    deleter = F.struct("seq", *_CLIENT)
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
    before = F.filter("deletions", lambda each: each["seq"] < F.col("seq"))
    by = F.when(F.col("reason") == "topic_deleted", F.array_max(before))
    named = named.withColumn("by", by)
    return named.withColumns({name: F.coalesce(f"by.{name}", name) for name in _CLIENT})


def _change(before: Column, after: Column) -> Column:
    return F.struct("topic", "partition", before.alias("from"), after.alias("to")).alias("change")


def _told(events: DataFrame) -> DataFrame:
    """Return the audit rows of events that are rows by themselves."""
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


def _minute() -> Column:
    return (F.col("ts_ms") - F.col("ts_ms") % MINUTE_MS).alias("minute_ms")
