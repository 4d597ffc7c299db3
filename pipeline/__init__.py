"""The event log in Spark: tables, reports, and offsets as they once were.

Nothing here is imported by the daemon; the extra `pipeline` brings what it needs
(docs/start/installing.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def views(spark: SparkSession, tables: str = "groupkeeper-tables") -> list[str]:
    """Create a temporary view for each table, all of one version; return their names.

    The views keep that version. Call it again to see a newer one.
    """
    from groupkeeper.pipeline.tables.views import create_views

    return create_views(spark, tables)
