"""``groupkeeper pipeline``: the jobs on the event log."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperCommand

from groupkeeper.coordinator.cli.extras import Extra, lacking
from groupkeeper.coordinator.cli.failing import USAGE, fail
from groupkeeper.coordinator.cli.pipeline import (
    data_ends,
    export,
    incidents,
    migrate,
    tables,
    verify,
)
from groupkeeper.coordinator.cli.stopping import stoppable

WITHOUT_SPARK: Final = {"dump-offsets", "sample-ends"}
"""Commands that need only Kafka's clients, as does ``restore --plan``, which makes no new plan."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
)


class _Job(TyperCommand):
    """A command that checks for missing packages before it runs, and stops on a signal.

    Its help works without the packages.
    """

    def invoke(self, ctx: Any) -> Any:
        extra = self._extra(ctx)
        if (lack := lacking(extra)) is not None:
            java = "Java 17 is needed too (Debian: openjdk-17-jre-headless). "
            fail(f"{java if extra == 'pipeline' else ''}{lack}", USAGE)
        with stoppable():
            return super().invoke(ctx)

    def _extra(self, ctx: Any) -> Extra:
        if self.name == "export":
            return "export"
        applies = self.name == "restore" and ctx.params["plan"] is not None
        return "admin" if applies or self.name in WITHOUT_SPARK else "pipeline"


@app.callback()
def pipeline() -> None:
    """Jobs on the event log: tables, reports, restore, migration, import.

    They need the extra `pipeline`, and Java. Exceptions: `export` needs only the extra `export`;
    `restore --plan`, `dump-offsets` and `sample-ends` need only the extra `admin`.
    """


tables.register(app)
data_ends.register(app)
incidents.register(app)
export.register(app)
verify.register(app)
migrate.register(app)
for _command in app.registered_commands:
    _command.cls = _Job
