"""The commands of the daemon itself: ``groupkeeper serve``, ``check-config`` and ``health``.

They are separate from all other commands, so that a starting daemon imports no other command.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from groupkeeper.coordinator.cli.extras import lacking
from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.plain_text import plain_lines
from groupkeeper.coordinator.cli.start_failure import report_start_failure
from groupkeeper.coordinator.daemon.address import parse_address
from groupkeeper.coordinator.daemon.config_load import ConfigError, LoadedSettings, load_settings
from groupkeeper.coordinator.daemon.setting_names import variable_of
from groupkeeper.coordinator.version import VERSION

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
        readable=False,  # typer's own message has another form and no advice
        help="Settings in TOML. Environment variables (GROUPKEEPER_<SECTION>__<KEY>) override it.",
    ),
]

TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for each answer."),
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

    SIGTERM and SIGINT stop it cleanly. After SIGHUP it reads logging.level from the settings again.
    """
    form = os.environ.get(variable_of("logging.format"), "auto")
    if (lack := lacking("server")) is not None:
        report_start_failure([lack], form)
        raise typer.Exit(USAGE)
    try:
        settings = load_settings(config).settings
    except ConfigError as error:
        report_start_failure(error.problems, form)
        raise typer.Exit(USAGE) from None
    # imported here: check-config and --version do not need them
    from groupkeeper.coordinator.daemon.app import run
    from groupkeeper.coordinator.daemon.process import CannotGoOn, StartFailed

    try:
        run(settings, lambda: load_settings(config).settings)
    except StartFailed as error:
        report_start_failure(
            [plain_lines(str(error))],
            settings.logging.format,
            was_started=isinstance(error, CannotGoOn),
        )
        raise typer.Exit(FAILED) from None


@app.command("check-config")
def check_config(config: ConfigOption = None) -> None:
    """Print every setting that would be in force, and where its value comes from."""
    from groupkeeper.coordinator.cli.check_config import describe
    from groupkeeper.storage.open import url_error

    loaded = _load(config)
    for line in describe(loaded):
        print(line)
    problem = url_error(loaded.settings.storage.url)
    if problem is not None:
        fail(problem, USAGE)


@app.command("health")
def health(config: ConfigOption = None, timeout: TimeoutOption = 5.0) -> None:
    """Ask the running daemon whether it serves groups.

    Calls GET /readyz at the address http.listen of the settings, and prints the answer. Exits 1 if
    the daemon is not ready, or does not answer.
    """
    from groupkeeper.coordinator.cli.health import check, reachable

    check(reachable(parse_address(_load(config).settings.http.listen)), timeout)


def _load(config: Path | None) -> LoadedSettings:
    try:
        return load_settings(config)
    except ConfigError as error:
        for problem in error.problems[:-1]:
            typer.echo(f"groupkeeper: {problem}", err=True)
        fail(error.problems[-1], USAGE)
