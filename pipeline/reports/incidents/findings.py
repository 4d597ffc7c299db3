"""The queries of the rules. Each query finds the times at which something was wrong: its findings.

A finding has a group, a subject (a topic or a client), a time and an amount. ``find`` makes one
incident of the findings about a subject that are close in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from groupkeeper.pipeline.reports.acts import acts
from groupkeeper.pipeline.reports.bounds import IncidentBounds
from groupkeeper.pipeline.reports.report import Scope
from groupkeeper.pipeline.tables.gold import MINUTE_MS
from groupkeeper.pipeline.tables.lake import DAY
from groupkeeper.pipeline.tables.offsets import OFFSET_KEY

GROUP: Final = ("store", "group", "name")
_OFFSET: Final = (*GROUP, "topic", "partition")


@dataclass(frozen=True)
class Facts:
    """The input of the queries of the rules: the tables, and the bounds."""

    scope: Scope
    bounds: IncidentBounds
    as_of_ms: int
    """The time of the newest row of the tables. An incident that lasts until this time is open."""

    def bound(self, name: str, group: str = "group") -> Column:
        """Return a column with the value of a bound for the group of each row. ``group`` is the
        column with the group.
        """
        value = F.lit(getattr(self.bounds, name))
        for pattern, other in reversed(self.bounds.exceptions(name)):
            value = F.when(F.col(group).rlike(pattern), F.lit(other)).otherwise(value)
        return value


def finding(  # noqa: PLR0913  the columns of a finding
    rows: DataFrame,
    *,
    subject: Column | str,
    since_ms: str,
    until_ms: str,
    amount: Column | str,
    who: Column | str,
    detail: Column | str,
) -> DataFrame:
    """Return rows with the columns of a finding. A null ``until_ms`` means that the problem has not
    ended.
    """
    named = {"subject": subject, "since_ms": since_ms, "until_ms": until_ms}
    named |= {"amount": amount, "who": who, "detail": detail}
    columns = [
        (F.col(value) if isinstance(value, str) else value).alias(name)
        for name, value in named.items()
    ]
    return rows.select(*GROUP, *columns)


def stalled(facts: Facts) -> DataFrame:
    """Find partitions whose offset does not move while their lag grows and their group commits
    other offsets.
    """
    of_offset = Window.partitionBy(*_OFFSET).orderBy("minute_ms")
    moved = ~F.col("offset").eqNullSafe(F.lag("offset").over(of_offset))
    steps = facts.scope.gold("lag_1m").withColumn("moved", moved.cast("int"))
    steps = steps.withColumn("stand", F.sum("moved").over(of_offset))
    # an offset that stands because nothing is left to consume is not stalled
    behind_ms = F.min(F.when(F.col("lag") > 0, F.col("minute_ms"))).alias("behind_ms")
    stands = steps.groupBy(*_OFFSET, "stand", "offset").agg(
        F.min("minute_ms").alias("since_ms"),
        behind_ms,
        (F.max("lag") - F.min("lag")).alias("growth"),
    )
    then = F.lead("since_ms").over(Window.partitionBy(*_OFFSET).orderBy("since_ms"))
    stands = stands.withColumn("until_ms", then).where(
        F.col("offset").isNotNull() & (F.col("growth") >= facts.bound("stalled_messages"))
    )
    last_ms = F.coalesce("until_ms", F.lit(facts.as_of_ms))
    long_ms = facts.bound("stalled_minutes") * MINUTE_MS
    stands = stands.where(last_ms - F.col("behind_ms") >= long_ms)
    commits = facts.scope.gold("commit_rate_1m").select("store", "group", "minute_ms").distinct()
    works_ms = F.col("s.behind_ms") + facts.bound("stalled_minutes", "s.group") * MINUTE_MS
    same = [F.col(f"s.{name}") == F.col(f"c.{name}") for name in ("store", "group")]
    is_meanwhile = F.col("c.minute_ms").between(
        works_ms, F.coalesce("s.until_ms", F.lit(facts.as_of_ms))
    )
    stands = stands.alias("s").join(commits.alias("c"), [*same, is_meanwhile], "left_semi")
    named = stands.join(_committers(facts), [*OFFSET_KEY, "offset"], "left")
    return finding(
        named,
        subject="topic",
        since_ms="behind_ms",
        until_ms="until_ms",
        amount="growth",
        who="who",
        detail=F.concat(F.lit("partition "), "partition", F.lit(" at "), "offset"),
    )


def _committers(facts: Facts) -> DataFrame:
    """Return for each partition and offset the client that last committed this offset."""
    commits = facts.scope.silver("commit_deltas")
    return commits.groupBy("store", "group", "topic", "partition", "offset").agg(
        F.max_by(_client(), "ts_ms").alias("who")
    )


def _client() -> Column:
    return F.concat("client_id", F.lit(" ("), "client_host", F.lit(")"))


def storms(facts: Facts) -> DataFrame:
    """Find the rebalances that are part of a storm: at least ``storm_rebalances`` of a group within
    ``storm_minutes``.
    """
    most = facts.bounds.storm_rebalances
    begun_ms = F.coalesce("started_ms", "completed_ms", "assigned_ms")
    rows = facts.scope.gold("rebalances").withColumn("since_ms", begun_ms)
    # a rebalance over midnight has a row in both days
    rows = rows.groupBy(*GROUP, "since_ms", "seq").agg(
        F.max("completed_ms").alias("completed_ms"),
        F.max_by("caused_by", DAY).alias("caused_by"),
        F.max_by("reason", DAY).alias("reason"),
    )
    order = Window.partitionBy(*GROUP).orderBy("since_ms", "seq")
    first_ms = F.lag("since_ms", most - 1).over(order)
    is_last = F.col("since_ms") - first_ms <= facts.bounds.storm_minutes * MINUTE_MS
    rows = rows.withColumn("is_last", F.coalesce(is_last, F.lit(False)))
    belongs = F.max("is_last").over(order.rowsBetween(0, most - 1))
    return finding(
        rows.withColumn("belongs", belongs)
        .where("belongs")
        .withColumn("until_ms", F.greatest("since_ms", "completed_ms")),
        subject=F.lit(""),
        since_ms="since_ms",
        until_ms="until_ms",
        amount=F.lit(1).cast("long"),
        who="caused_by",
        detail=F.translate("reason", "_", " "),
    )


def rewound(facts: Facts) -> DataFrame:
    """Find commits that move an offset back, by members and by others. Restores do not count,
    because an operator uses them for repairs.
    """
    rows = acts(facts.scope).where("messages_back > 0 AND action IN ('rewind', 'reset')")
    return finding(
        rows,
        subject=_client(),
        since_ms="ts_ms",
        until_ms="ts_ms",
        amount="messages_back",
        who=F.concat(_client(), F.lit(", "), "principal", F.lit(", "), "done_by"),
        detail=F.element_at(
            F.transform(
                F.col("changes"),
                lambda each: F.concat(
                    each["topic"], F.lit("-"), each["partition"], F.lit(" to "), each["to"]
                ),
            ),
            1,
        ),
    )


def skipped(facts: Facts) -> DataFrame:
    """Find commits that move an offset forward over messages that the group did not consume.
    Restores do not count.
    """
    rows = facts.scope.named(facts.scope.silver("commit_deltas")).where("is_skip")
    rows = rows.where(F.col("cause") != "restore")
    cause = F.when(F.col("cause") == "member", F.lit("a member")).otherwise(
        F.lit("an administrator, or a consumer without a group")
    )
    return finding(
        rows,
        subject="topic",
        since_ms="ts_ms",
        until_ms="ts_ms",
        amount="delta",
        who=F.concat(_client(), F.lit(", "), "principal", F.lit(", "), cause),
        detail=F.concat(F.lit("partition "), "partition", F.lit(" to "), "offset"),
    )


def refused(facts: Facts) -> DataFrame:
    """Find refused commits. The subject is the client."""
    rows = facts.scope.gold("audit").where("action = 'rejected'")
    return finding(
        rows,
        subject=_client(),
        since_ms="ts_ms",
        until_ms="ts_ms",
        amount="count",
        who=F.concat(_client(), F.lit(", "), "principal"),
        detail="detail",
    )


def silent(facts: Facts) -> DataFrame:
    """Find groups that commit nothing although they have a lag."""
    lag = facts.scope.gold("lag_1m")
    # if a group commits nothing in these days, its pause begins at its first row
    begins = lag.groupBy(*GROUP).agg(F.min("minute_ms").alias("minute_ms"))
    commits = facts.scope.gold("commit_rate_1m").select(*GROUP, "minute_ms")
    moments = commits.unionByName(begins).distinct()
    then = F.lead("minute_ms").over(Window.partitionBy(*GROUP).orderBy("minute_ms"))
    pauses = moments.select(*GROUP, F.col("minute_ms").alias("since_ms"), then.alias("until_ms"))
    # only the time in which the group is behind counts
    behind = _held(lag, facts).where("lag > 0")
    is_meanwhile = (F.col("b.until_ms") > F.col("p.since_ms")) & (
        F.col("b.minute_ms") < F.coalesce("p.until_ms", F.lit(facts.as_of_ms))
    )
    same = [F.col(f"p.{name}") == F.col(f"b.{name}") for name in ("store", "group")]
    found = pauses.alias("p").join(behind.alias("b"), [*same, is_meanwhile])
    pause = [F.col(f"p.{name}") for name in (*GROUP, "since_ms", "until_ms")]
    silent = found.groupBy(*pause).agg(
        F.max("b.lag").alias("lag"),
        F.min("b.minute_ms").alias("behind_ms"),
        F.max("b.until_ms").alias("last_ms"),
    )
    silent = silent.withColumn("since_ms", F.greatest("since_ms", "behind_ms"))
    last_ms = F.least(F.coalesce("until_ms", F.lit(facts.as_of_ms)), F.col("last_ms"))
    silent = silent.withColumn("last_ms", last_ms)
    long_ms = facts.bound("silent_minutes") * MINUTE_MS
    silent = silent.where(F.col("last_ms") - F.col("since_ms") >= long_ms)
    goes_on = F.col("until_ms").isNull() & (F.col("last_ms") >= F.lit(facts.as_of_ms))
    silent = silent.withColumn("until_ms", F.when(~goes_on, F.col("last_ms")))
    return finding(
        silent.withColumn("who", F.lit(None).cast("string")),
        subject=F.lit(""),
        since_ms="since_ms",
        until_ms="until_ms",
        amount="lag",
        who="who",
        detail=F.lit(None).cast("string"),
    )


def _held(lag: DataFrame, facts: Facts) -> DataFrame:
    """Return the rows of ``lag_1m``, each with the moment until which its values are valid."""
    then = F.lead("minute_ms").over(Window.partitionBy(*_OFFSET).orderBy("minute_ms"))
    return lag.withColumn("until_ms", F.coalesce(then, F.lit(facts.as_of_ms)))


def above_slo(facts: Facts) -> DataFrame:
    """Find the times in which a partition is further behind than its objective (SLO) allows."""
    rows = _held(facts.scope.gold("lag_1m"), facts).where(F.col("lag") > facts.bound("slo_lag"))
    goes_on = F.col("until_ms") >= F.lit(facts.as_of_ms)
    rows = rows.withColumn("until_ms", F.when(~goes_on, F.col("until_ms")))
    return finding(
        rows.withColumn("who", F.lit(None).cast("string")),
        subject="topic",
        since_ms="minute_ms",
        until_ms="until_ms",
        amount="lag",
        who="who",
        detail=F.concat(F.lit("partition "), "partition"),
    )
