"""``groupkeeper pipeline``: the jobs over the event log."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import typer

from coordinator.cli import migrate, tables
from coordinator.cli.failing import USAGE, fail

NEEDED: Final = ("pyspark", "pyarrow", "confluent_kafka", "kafka")
"""What the extra brings, by import name."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def pipeline() -> None:
    """The event log's jobs: tables, reports, restore, migration, import.

    They need the extra `pipeline`, and Java.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        fail(
            f"{', '.join(missing)} is not installed: pip install 'groupkeeper[pipeline]', and "
            "Java 17 (Debian: openjdk-17-jre-headless)",
            USAGE,
        )


tables.register(app)
migrate.register(app)
