"""Makes tables and reports from the event log with Spark, and restores offsets of an earlier
moment.

The daemon does not import this package. The extra `pipeline` installs the packages that it needs
(docs/start/installing.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def views(spark: SparkSession, tables: str = "groupkeeper-tables") -> list[str]:
    """Create a temporary view in Spark for each table of silver (facts about groups) and gold
    (summaries). Return the names of the views. ``tables`` is the folder of the tables.

    All views show the tables of the last complete run. They do not change if a later run publishes
    new tables: call the function again to see those.
    """
    from groupkeeper.pipeline.tables.views import create_views

    return create_views(spark, tables)
