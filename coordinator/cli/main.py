"""The command line: ``groupkeeper serve`` and ``groupkeeper check-config``.

Exit codes: 0 done, 1 could not do it, 2 used wrongly (options, settings). What is expected to fail
fails with one line that says what happened and what to do; a traceback is a bug of ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.check_config import describe
from coordinator.config_load import ConfigError, LoadedSettings, load_settings
from coordinator.version import VERSION

app = typer.Typer(
    name="groupkeeper",
    help="A standalone consumer-group coordinator that speaks the Kafka protocol.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings in TOML. The environment (GROUPKEEPER_<SECTION>__<KEY>) wins over it.",
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"groupkeeper {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A standalone consumer-group coordinator that speaks the Kafka protocol."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("serve")
def serve(config: ConfigOption = None) -> None:
    """Run the daemon.

    SIGTERM and SIGINT end it cleanly, SIGHUP reads the log level again.
    """
    loaded = _load(config)
    # late: check-config and --version need none of it
    from coordinator.app import run
    from coordinator.process import StartFailed

    try:
        run(loaded.settings, lambda: load_settings(config).settings)
    except StartFailed as error:
        _fail(str(error), 1)


@app.command("check-config")
def check_config(config: ConfigOption = None) -> None:
    """Print every setting in force and where it came from."""
    for line in describe(_load(config)):
        print(line)


def _load(config: Path | None) -> LoadedSettings:
    try:
        return load_settings(config)
    except ConfigError as error:
        for problem in error.problems[:-1]:
            typer.echo(f"groupkeeper: {problem}", err=True)
        _fail(error.problems[-1], 2)
        raise AssertionError("unreachable") from error


def _fail(problem: str, code: int) -> None:
    typer.echo(f"groupkeeper: {problem}", err=True)
    raise typer.Exit(code)
