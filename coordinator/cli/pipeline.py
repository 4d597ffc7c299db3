"""``groupkeeper pipeline``: the jobs over the event log."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

import typer
from typer.core import TyperCommand

from coordinator.cli import migrate, tables
from coordinator.cli.failing import USAGE, fail
from coordinator.cli.stopping import stoppable

NEEDED: Final = ("pyspark", "pyarrow", "confluent_kafka", "kafka")
"""What the extra brings, by import name."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
)


class _Job(TyperCommand):
    """Says what is missing before it runs (its help needs nothing), and ends when it is told to."""

    def invoke(self, ctx: Any) -> Any:
        """Run, if what the extra brings is there."""
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            fail(
                f"{', '.join(missing)}: not installed; pip install 'groupkeeper[pipeline]', and "
                "Java 17 (Debian: openjdk-17-jre-headless)",
                USAGE,
            )
        with stoppable():
            return super().invoke(ctx)


@app.callback()
def pipeline() -> None:
    """The event log's jobs: tables, reports, restore, migration, import.

    They need the extra `pipeline`, and Java.
    """


tables.register(app)
migrate.register(app)
for _command in app.registered_commands:
    _command.cls = _Job
