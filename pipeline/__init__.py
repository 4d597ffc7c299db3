"""The event log in Spark: tables, reports, and offsets of an earlier moment.

The daemon does not import this package. The extra `pipeline` installs the packages that it needs
(docs/start/installing.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def views(spark: SparkSession, tables: str = "groupkeeper-tables") -> list[str]:
    """Create a temporary view for each table, all of one version. Return their names.

    The views keep that version. To see a newer one, call the function again.
    """
    from groupkeeper.pipeline.tables.views import create_views

    return create_views(spark, tables)
