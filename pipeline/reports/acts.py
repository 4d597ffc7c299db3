"""The rows of the audit report, with who did each action: a member, a former member, an
administrator.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from groupkeeper.pipeline.reports.report import Scope
from groupkeeper.pipeline.tables.gold import MINUTE_MS

FORMER_MEMBER: Final = "former member"

DONE_BY: Final = {
    "rewind": "member",
    "reset": "administrator, or a consumer without a group",
    "restore": "restore",
    "rejected": FORMER_MEMBER,
    "admin": "administrator",
    "delete": "administrator",
    "group_delete": "administrator",
    "expire": "coordinator",
}
"""For each action, who does it."""

FORMER_MINUTES: Final = 10
"""How long after the end of its session a client's commit counts as a former member's. A client
notices with its next poll, at the latest after ``max.poll.interval.ms`` (5 minutes)."""


def acts(scope: Scope) -> DataFrame:
    """Return ``gold.audit`` with the column ``done_by``.

    A client that lost its session may commit once more without a member id. An administrator's
    commit has no member id either. If a member with the same client id and host was evicted minutes
    before, the commit counts as the former member's. If it moves an offset back, it is a rewind.
    """
    audit = scope.gold("audit")
    word = F.create_map(*(F.lit(each) for pair in DONE_BY.items() for each in pair))
    others = audit.where("action <> 'reset'").withColumn("done_by", word[F.col("action")])
    resets = audit.where("action = 'reset'").alias("r")
    ended = _lost_sessions(scope).alias("m")
    same = ("store", "group", "client_id", "client_host")
    since_end_ms = F.col("r.ts_ms") - F.col("m.ended_ms")
    was_member = [F.col(f"r.{name}") == F.col(f"m.{name}") for name in same]
    was_member.append(since_end_ms.between(0, FORMER_MINUTES * MINUTE_MS))
    is_rewind = F.col("messages_back") > 0
    former = (
        resets.join(ended, was_member, "left_semi")
        .withColumn("action", F.when(is_rewind, "rewind").otherwise(F.col("action")))
        .withColumn("done_by", F.lit(FORMER_MEMBER))
    )
    rest = resets.join(ended, was_member, "left_anti").withColumn("done_by", word[F.lit("reset")])
    return others.unionByName(former).unionByName(rest)


def _lost_sessions(scope: Scope) -> DataFrame:
    """Return the sessions that ended against the member's will.

    A member that leaves by itself has committed before. A later commit with its client id comes
    from another program, such as an administrator's: many clients have the same id by default.
    """
    ended = F.col("ended_ms").isNotNull() & ~F.col("ended_by").isin("leave", "replaced")
    return scope.silver("member_sessions").where(ended)
