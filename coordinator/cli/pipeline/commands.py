"""``groupkeeper pipeline``: the jobs on the event log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    restore,
    tables,
    verify,
)
from groupkeeper.coordinator.cli.stopping import stoppable

WITHOUT_SPARK: Final = {"dump-offsets", "sample-ends"}
"""Commands that need only Kafka's clients. ``restore --plan`` needs no Spark either, because it
applies a plan that an earlier command made.
"""

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


_COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "run": tables.run_command,
    "report": tables.report_command,
    "sample-ends": data_ends.sample_ends_command,
    "incidents": incidents.incidents_command,
    "export": export.export_command,
    "verify": verify.verify_command,
    "maintain": verify.maintain_command,
    "restore": restore.restore_command,
    "migrate": migrate.migrate_command,
    "dump-offsets": migrate.dump_command,
    "import": migrate.import_command,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=_Job)(_command)
