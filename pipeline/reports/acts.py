"""Finds who did each action in the audit report: a member, a former member or an administrator."""

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
"""Maps each action to the text of the column ``done_by``."""

FORMER_MINUTES: Final = 10
"""If a client commits at most this number of minutes after its session ended, it counts as a former
member. A client notices the end of its session with its next poll, at the latest after
``max.poll.interval.ms`` (5 minutes by default)."""


def acts(scope: Scope) -> DataFrame:
    """Return the table ``gold.audit`` with the column ``done_by``.

    A client that lost its session may commit once more without a member id. An administrator's
    commit has no member id either. If a member with the same client id and host was evicted at most
    ``FORMER_MINUTES`` before, the commit counts as a commit of this former member. If it moves an
    offset back, its action is ``rewind`` and not ``reset``.
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
    """Return the sessions that the coordinator ended. Sessions of members that left or were
    replaced are not included.

    A member commits before it leaves. So a later commit with the same client id comes from another
    program. That program may be an administrator's tool, because many clients have the same client
    id by default.
    """
    ended = F.col("ended_ms").isNotNull() & ~F.col("ended_by").isin("leave", "replaced")
    return scope.silver("member_sessions").where(ended)
