"""Opens a plan, checks or applies it, and prints the next command.

A plan is a file with changes of committed offsets, of a restore or a migration.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output
from groupkeeper.coordinator.cli.pipeline.plan_view import (
    as_json,
    print_outcomes,
    print_plan,
    read_plan,
)

if TYPE_CHECKING:
    from groupkeeper.pipeline.restore.apply import Outcome
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint
    from groupkeeper.pipeline.restore.plan import Change, Plan


class Again(NamedTuple):
    """The command and the options with which the user can apply or undo a plan later."""

    path: Path
    """The file of the plan."""
    server: str | None = None
    client_config: Path | None = None
    name: str = ""
    """The command without ``groupkeeper``, such as ``zookeeper migrate``. If it is empty, the
    command is the one of ``groupkeeper pipeline`` that made the plan."""
    zookeeper_config: Path | None = None

    def command(self, plan: Plan) -> str:
        """Return the text of a command that opens the plan again for the same server."""
        elsewhere = self.server if self.server != plan.content.server else None
        options = {
            "--plan": self.path,
            "--server": elsewhere,
            "--client-config": self.client_config,
            "--zookeeper-config": self.zookeeper_config,
        }
        given = [f"{name} {shlex.quote(str(value))}" for name, value in options.items() if value]
        return " ".join(["groupkeeper", self.name or f"pipeline {command_of(plan)}", *given])


def refuse_with_plan(given: Mapping[str, object]) -> None:
    """Exit with USAGE if the user names an existing plan, and also one of the options ``given``,
    which are only for a new plan.
    """
    if names := [name for name, value in given.items() if value]:
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        fail(f"--plan names an existing plan: leave out {listed}", USAGE)


def check_verify(plan: Path | None, *, verify: bool, undo: bool, apply: bool) -> None:
    """Exit with USAGE if --verify or --undo is used without --plan, or --verify with --apply."""
    if plan is None and (verify or undo):
        fail("--verify and --undo need an existing plan: name it with --plan FILE", USAGE)
    if verify and apply:
        fail("--verify changes nothing: leave out --apply, or --verify", USAGE)


def opened_plan(path: Path, undo: bool) -> Plan:
    """Return the plan in a file. With ``undo``, return the plan that undoes it. An undo has the
    same id at each call, because it has the time at which the first plan was made.
    """
    plan = read_plan(path)
    return plan.undo(plan.content.created_ms) if undo else plan


def carry_out(
    plan: Plan, endpoint: ClusterEndpoint, again: Again, apply: bool, output: Output
) -> None:
    """Print a plan, check or apply it, and print the outcomes. Exit with FAILED if a group was
    refused or has failed.
    """
    from groupkeeper.pipeline.restore.apply import apply as apply_groups
    from groupkeeper.pipeline.restore.apply import check
    from groupkeeper.pipeline.restore.cluster import ClusterError

    if output is Output.TABLE:
        print_plan(plan)
        print()
    try:
        with endpoint.open(plan.client_id) as cluster:
            step = apply_groups if apply else check
            outcomes = list(step(cluster, plan.content.groups))
    except ClusterError as error:
        fail(str(error), FAILED)
    print_result(plan, again, outcomes, apply, output)


def print_result(
    plan: Plan, again: Again, outcomes: list[Outcome], apply: bool, output: Output
) -> None:
    """Print the outcomes, and the command with which the user can apply or undo the plan. Exit with
    FAILED if a group was refused or has failed.
    """
    if output is Output.JSON:
        print(as_json(plan, again.path, outcomes, applied=apply))
    else:
        print_outcomes(outcomes)
        # an undo has no file of its own: it is made from the plan's file
        undo = " --undo" if plan.content.undoes is not None else ""
        back = "" if undo else " --undo"
        command = again.command(plan)
        results = {str(outcome.result) for outcome in outcomes}
        if "pending" in results:
            print(f"Nothing was changed. To apply it: {command}{undo} --apply")
        elif "applied" in results:
            print(f"To undo it: {command}{back} --apply")
        elif results == {"done_before"} and not any(_changes(plan)):
            print("Nothing was changed: there was nothing to do.")
        elif results == {"done_before"}:
            print(f"Nothing was changed: all is done. To undo it: {command}{back} --apply")
        else:
            print("Nothing was changed.")
    if not all(outcome.is_well for outcome in outcomes):
        raise typer.Exit(FAILED)


def _changes(plan: Plan) -> Iterator[Change]:
    return (each for group in plan.content.groups for each in group.to_do)


def command_of(plan: Plan) -> str:
    """Return the name of the command that made a plan: ``restore`` or ``migrate``. For an undo,
    return the command that made the plan to undo.
    """
    return "restore" if plan.content.as_of_ms is not None else "migrate"
