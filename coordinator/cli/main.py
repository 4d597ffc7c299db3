"""The command line, whole: ``groupkeeper serve``, ``group``, ``log``, ``pipeline`` and the others.

Exit codes: 0 done, 1 could not do it, 2 used wrongly (options, settings), 4 nothing matched, 5
another process is at it, 141 nobody reads what it prints (``| head``); a pipeline job that is told
to end, 130 (Ctrl-C) or 143 (SIGTERM). What is expected to fail fails with one line that says
what happened and what to do; a traceback is a bug of ours.
"""

from __future__ import annotations

from groupkeeper.coordinator.cli.daemon import app
from groupkeeper.coordinator.cli.group import app as group_app
from groupkeeper.coordinator.cli.log import app as log_app
from groupkeeper.coordinator.cli.pipeline.commands import app as pipeline_app

app.add_typer(group_app, name="group")
app.add_typer(log_app, name="log")
app.add_typer(pipeline_app, name="pipeline")

__all__ = ["app"]
