"""Finds the incidents in the tables. Each incident has what an operator needs to know: its time,
its amount, the clients, and what to do.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from groupkeeper.pipeline.reports.incidents.findings import GROUP, Facts
from groupkeeper.pipeline.reports.incidents.rules import RULES, SEVERITIES, Rule
from groupkeeper.pipeline.reports.report import Scope, collect
from groupkeeper.pipeline.restore.standing import utc
from groupkeeper.pipeline.tables.gold import MINUTE_MS

MAX_INCIDENTS: Final = 10_000
"""The largest number of incidents that a search returns, about 10 MB of JSON. Open, severe and new
incidents are preferred, in this order."""

MAX_NAMED: Final = 4
"""The largest number of clients, and the largest number of details, that an incident names."""

_BY_NAME: Final = {rule.name: rule for rule in RULES}
_NO_END_MS: Final = 2**62


@dataclass(frozen=True)
class FoundIncidents:
    """The incidents that the rules found in some days, at most ``MAX_INCIDENTS``."""

    as_of_ms: int | None
    """The time of the newest row of the tables; None if they have no rows."""
    incidents: list[dict[str, Any]]
    """Open incidents are first, then the most severe, then the newest."""
    left_out: int = 0
    """The number of incidents beyond ``MAX_INCIDENTS``."""
    sampled_ms: int | None = None
    """When the true ends of partitions were last sampled (ms); None if they never were."""

    @property
    def open(self) -> list[dict[str, Any]]:
        """The incidents that are not over."""
        return [each for each in self.incidents if each["state"] == "open"]


def find(scope: Scope) -> FoundIncidents:
    """Return the incidents that the rules find in the days of ``scope``."""
    as_of_ms = _as_of_ms(scope)
    if as_of_ms is None:
        return FoundIncidents(None, [])
    facts = Facts(scope, scope.bounds, as_of_ms)
    found = reduce(DataFrame.unionByName, (_of_rule(rule, facts) for rule in RULES))
    is_open = F.col("ended_ms").isNull()
    rank = F.create_map(*(F.lit(each) for pair in enumerate(_BY_NAME) for each in reversed(pair)))
    ordered = found.orderBy(
        F.desc(is_open), rank[F.col("rule")], F.desc("started_ms"), "name", "subject"
    )
    rows = collect(ordered.limit(MAX_INCIDENTS + 1))
    left_out = found.count() - MAX_INCIDENTS if len(rows) > MAX_INCIDENTS else 0
    incidents = [_described(row, as_of_ms) for row in rows[:MAX_INCIDENTS]]
    names = _members(facts, incidents)
    for each in incidents:
        each["who"] = each["who"] or names.get(
            (each["store"], each["group"]), "no member at present"
        )
    return FoundIncidents(as_of_ms, incidents, left_out, scope.sampled_ms)


def _as_of_ms(scope: Scope) -> int | None:
    """Return the time of the newest row of the tables; None if they are empty."""
    minute_end = (F.col("minute_ms") + MINUTE_MS - 1).alias("ts_ms")
    moments = [scope.gold(name).select(minute_end) for name in ("lag_1m", "commit_rate_1m")]
    moments.append(scope.gold("audit").select("ts_ms"))
    of_rebalances = F.greatest("started_ms", "completed_ms", "assigned_ms").alias("ts_ms")
    moments.append(scope.gold("rebalances").select(of_rebalances))
    ((last,),) = reduce(DataFrame.unionByName, moments).agg(F.max("ts_ms")).collect()
    return None if last is None else int(last)


def _of_rule(rule: Rule, facts: Facts) -> DataFrame:
    """Return the incidents of a rule, one row each.

    An incident is a sequence of findings about the same subject. A finding belongs to the same
    incident as the one before it if the time between them is at most ``quiet_minutes``. For a rule
    that ``is_lasting``, the limit is one minute. Incidents that do not reach the bounds of the
    rule are left out.
    """
    quiet_ms = MINUTE_MS if rule.is_lasting else facts.bounds.quiet_minutes * MINUTE_MS
    key = (*GROUP, "subject")
    last_ms = F.coalesce("until_ms", F.lit(_NO_END_MS))
    order = Window.partitionBy(*key).orderBy("since_ms")
    before = F.max(last_ms).over(order.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(F.col("since_ms") - before <= quiet_ms, 0).otherwise(1)
    findings = rule.find(facts).withColumn("begins", begins)
    findings = findings.withColumn("number", F.sum("begins").over(order))
    amount = F.sum("amount") if rule.adds_up else F.max("amount")
    incidents = findings.groupBy(*key, "number").agg(
        F.min("since_ms").alias("started_ms"),
        F.max(last_ms).alias("last_ms"),
        amount.alias("amount"),
        F.count("*").alias("findings"),
        *_named("who"),
        *_named("detail"),
    )
    as_of = F.lit(facts.as_of_ms)
    seen_ms = F.least("last_ms", as_of)
    open_ms = F.lit(0 if rule.is_lasting else quiet_ms)
    ended_ms = F.when(F.col("last_ms") + open_ms < as_of, F.col("last_ms"))
    lasting = incidents.select(
        *(name for name in incidents.columns if name not in ("number", "last_ms")),
        F.lit(rule.name).alias("rule"),
        seen_ms.alias("last_ms"),
        ended_ms.alias("ended_ms"),
    )
    return lasting.where(_reaches(rule, facts))


def _named(column: str) -> tuple[Column, Column]:
    """Return the first few different values of a column, and the number of all different ones."""
    values = F.collect_set(column)
    first = F.slice(F.array_sort(values), 1, MAX_NAMED)
    return first.alias(column), F.size(values).alias(f"{column}_count")


def _reaches(rule: Rule, facts: Facts) -> Column:
    reaches = F.lit(True)
    if rule.least:
        reaches &= F.col("amount") >= facts.bound(rule.least)
    if rule.least_minutes:
        length_ms = F.col("last_ms") - F.col("started_ms")
        reaches &= length_ms >= facts.bound(rule.least_minutes) * MINUTE_MS
    return reaches


def _described(row: dict[str, Any], as_of_ms: int) -> dict[str, Any]:
    """Return an incident with the fields for reports and webhooks."""
    rule = _BY_NAME[row["rule"]]
    is_open = row["ended_ms"] is None
    return {
        "id": incident_id(row["rule"], row["store"], row["group"], row["subject"] or ""),
        "rule": rule.name,
        "severity": rule.severity,
        "state": "open" if is_open else "over",
        "title": rule.title,
        "group": row["group"],
        "name": row["name"],
        "store": row["store"],
        "subject": row["subject"] or "",
        "started_ms": row["started_ms"],
        "ended_ms": row["ended_ms"],
        "last_ms": row["last_ms"],
        "amount": row["amount"],
        "unit": rule.unit,
        "findings": row["findings"],
        "who": _listed(row["who"], row["who_count"]),
        "detail": _listed(row["detail"], row["detail_count"]),
        "evidence": evidence(rule, row, as_of_ms),
        "report": f"{rule.page}.html",
        "what_to_do": rule.what_to_do.format(
            group=shlex.quote(row["group"]), before=utc(row["started_ms"] - 1)
        ),
    }


def incident_id(rule: str, store: str, group: str, subject: str) -> str:
    """Return the id of an incident. If the same problem comes back later, the new incident has the
    same id.
    """
    text = "\0".join((rule, store, group, subject))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _listed(values: Iterable[str], count: int) -> str:
    named = list(values)
    more = [f"and {count - len(named)} more"] if count > len(named) else []
    return "; ".join([*named, *more])


def evidence(rule: Rule, row: dict[str, Any], as_of_ms: int) -> str:
    """Return an SQL query for the rows that show an incident. It needs the views in
    ``views/duckdb.sql``.
    """
    last_ms = as_of_ms if row["ended_ms"] is None else row["last_ms"]
    tests = [f'"group" = {_quoted(row["group"])}']
    if rule.subject:
        tests.append(f"{rule.subject} = {_quoted(row['subject'])}")
    tests += [rule.more] if rule.more else []
    tests.append(f"{rule.at} BETWEEN {row['started_ms']} AND {last_ms}")
    where = " AND ".join(tests)
    return f"SELECT * FROM {rule.view} WHERE {where} ORDER BY {rule.at}"  # noqa: S608  to be read


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _members(facts: Facts, incidents: Iterable[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Return a text about the members at the end of the last day, by store and group. Only groups
    with an incident that names no client are included.
    """
    groups = sorted({each["group"] for each in incidents if not each["who"]})
    if not groups:
        return {}
    sessions = facts.scope.silver("member_sessions").where(
        F.col("group").isin(groups) & F.col("ended_ms").isNull()
    )
    client = F.concat("client_id", F.lit(" ("), "client_host", F.lit(")"))
    sessions = sessions.where(F.col("dt") == F.lit(facts.scope.days[-1]))
    rows = sessions.withColumn("who", client).groupBy("store", "group").agg(*_named("who"))
    return {
        (row["store"], row["group"]): f"its members: {_listed(row['who'], row['who_count'])}"
        for row in collect(rows)
    }


def at_least(severity: str) -> tuple[str, ...]:
    """Return this severity and all more severe ones."""
    return SEVERITIES[: SEVERITIES.index(severity) + 1]
