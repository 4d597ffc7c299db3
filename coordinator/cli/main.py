"""The whole command line: ``groupkeeper serve``, ``group``, ``log``, ``pipeline`` and the others.

Exit codes:

- 0: done
- 1: failed
- 2: wrong options or settings
- 3: an incident is open (``pipeline incidents --fail-on``)
- 4: nothing matched
- 5: another process does the same work
- 130 or 143: the command was stopped by Ctrl-C or SIGTERM
- 141: the reader of the output has ended (``| head``)

An expected failure prints one line with the cause and the remedy. A traceback is a bug.
"""

from __future__ import annotations

from groupkeeper.coordinator.cli.consul.commands import app as consul_app
from groupkeeper.coordinator.cli.daemon import app
from groupkeeper.coordinator.cli.group import app as group_app
from groupkeeper.coordinator.cli.log import app as log_app
from groupkeeper.coordinator.cli.offsets import app as offsets_app
from groupkeeper.coordinator.cli.owners import owners_command
from groupkeeper.coordinator.cli.pipeline.commands import app as pipeline_app
from groupkeeper.coordinator.cli.storage import app as storage_app
from groupkeeper.coordinator.cli.upstream import app as upstream_app
from groupkeeper.coordinator.cli.zookeeper.commands import app as zookeeper_app

app.add_typer(consul_app, name="consul")
group_app.command("owners")(owners_command)
app.add_typer(group_app, name="group")
app.add_typer(log_app, name="log")
app.add_typer(offsets_app, name="offsets")
app.add_typer(pipeline_app, name="pipeline")
app.add_typer(storage_app, name="storage")
app.add_typer(upstream_app, name="upstream")
app.add_typer(zookeeper_app, name="zookeeper")

__all__ = ["app"]
